%% @doc Creates agent/fixtures: the client's requests and the answers of real nodes, as external terms in the encoding of the
%% release that sends them. Started by fixtures/make.sh.
-module(agent_fixtures).
-export([main/1]).

-define(HOT, [msacc, scheduler_wall_time, run_queues, statistics, memory, counts, check_io, {procs, #{top => 5}}, events, ran, weigh, crashes, table_growth]).
-define(SLOW, [atoms, {stands, #{sample => 200}}, messages, {processes, #{top => 3}}, spawns, {ets, #{top => 3}}, {ports, #{top => 3}}, dist, allocators]).
%% Requests whose answers reveal nothing about the host on which the fixtures are created. The last ones are refused.
-define(HOST, [{host, #{ask => [{read, <<"/proc/self/limits">>, 65536}, {read, <<"/proc/meminfo">>, 9}, {link, <<"/proc/self/ns/cgroup">>},
                                {count, <<"/proc/self/fd">>}, all_threads, {read, <<"/sys/fs/cgroup/beamtune-none/cpu.max">>, 64},
                                {read, <<"/proc/self/environ">>, 64}, {read, <<"/sys/fs/cgroup/../../../etc/passwd">>, 64}]}}]).

%% Items that are read only on request.
-define(EXPLICIT,
        [{carriers, #{allocators => [<<"binary_alloc">>, <<"ets_alloc">>], pools => true, limit_ms => 10000}},
         {allocations, #{top => 3, pools => true, limit_ms => 10000}}, {code_memory, #{top => 3, limit_ms => 5000}},
         {holders, #{top => 3, limit_ms => 10000}},
         {collect, #{share => 1000, max_processes => 50, batch => 10, pause_ms => 1, latency_limit_ms => 60000,
                     max_heap_bytes => 268435456, top => 3, limit_ms => 30000}},
         {locks, #{for_ms => 200, top => 3, max_bytes => 1073741824, limit_ms => 30200}}]).

%% Arguments: release, its root, folder of agent_target within that root, output folder.
-spec main([string()]) -> no_return().
main([Release, Root, Beams, Out]) ->
    Target = agent_nodes:start(Release, Root, Beams, ["+sbwt", "none", "-kernel", "net_ticktime", "30"]),
    Node = agent_nodes:node_of(Target),
    %% The node encodes the answers.
    Write = fun(Name, Term) ->
                write(Out, ["r", Release, "-", Name], erpc:call(Node, erlang, term_to_binary, [Term]))
            end,
    agent_nodes:call(Target, named, ['Elixir.My.Größe']),
    agent_nodes:call(Target, large, [1000]),
    agent_nodes:call(Target, busy, [1]),
    agent_nodes:call(Target, garbage, [20, 10000]),
    agent_nodes:call(Target, sharing, [3, 2, 50000]),
    agent_nodes:call(Target, tables, [['my table']]),
    Population = agent_nodes:call(Target, population, [5]),
    list_to_integer(Release) >= 27 andalso agent_nodes:call(Target, labelled, [{my_worker, <<"größe"/utf8>>}]),
    #{agent := Pid, session := Session, joined := Joined} = Agent = agent_client:join(Node, #{lease_ms => 5000}),
    Write("joined", {beamtune, joined, Joined}),
    First = agent_client:sample(Agent, 1, [facts, {procs, #{top => 5}}, atoms, no_such_item]),
    Write("sample-facts", {beamtune, sample, 1, First}),
    Population ! {self(), {turnover, 1, 3}},
    receive {Population, {3, 1}} -> ok end,
    Write("sample-hot", {beamtune, sample, 2, agent_client:sample(Agent, 2, ?HOT)}),
    %% On some releases, the last sample has loaded modules, whose atoms are new, too.
    [agent_nodes:call(Target, erlang, list_to_atom, [lists:concat(["größe-", N])]) || N <- lists:seq(1, 20)],
    Write("sample-slow", {beamtune, sample, 3, agent_client:sample(Agent, 3, ?SLOW)}),
    Write("sample-host", {beamtune, sample, 4, complete_host_sample(Agent)}),
    Write("sample-asked", {beamtune, sample, 5, agent_client:sample(Agent, 5, ?EXPLICIT)}),
    %% The binaries of tables are measured only if there are many binaries.
    agent_nodes:call(Target, binary_tables, []),
    agent_client:sample(Agent, 6, [memory, {ets, #{top => 3}}]),
    Write("sample-binaries", {beamtune, sample, 7, agent_client:sample(Agent, 7, [table_growth, {ports, #{top => 3}}])}),
    Pid ! {nonsense, self()},
    receive {beamtune, bad_request, _} = Refusal -> Write("bad-request", Refusal) end,
    Pid ! {leave, self()},
    receive {beamtune, left, _} = Left -> Write("left", Left) end,
    receive {'EXIT', Session, Reason} -> Write("session-exit", Reason) end,
    %% This node encodes the client's requests.
    [write(Out, ["request-", Name], term_to_binary(Request))
     || {Name, Request} <- [{"sample-hot", {sample, self(), 2, ?HOT, #{timeout_ms => 2000}}},
                            {"sample-slow", {sample, self(), 3, ?SLOW, #{}}},
                            {"sample-host", {sample, self(), 4, ?HOST, #{}}},
                            {"sample-asked", {sample, self(), 5, ?EXPLICIT, #{}}},
                            {"renew", {renew, self()}}, {"leave", {leave, self()}},
                            {"bindings", [{'Beam', <<"the beam">>}, {'Client', self()}, {'Name', beamtune_agent_00000000},
                                          {'Options', #{lease_ms => 5000, budget_ppm => 10000}}]}],
        Release =:= "25"],
    agent_nodes:stop(Target),
    lock_counts(agent_nodes:start_lcnt(Release, Root, Beams), fun(Name, Node2, Term) ->
                      write(Out, ["r", Release, "-", Name], erpc:call(Node2, erlang, term_to_binary, [Term]))
                  end),
    halt(0).

%% Returns a sample with all files of the host. On a busy host, some files are late, so it may take several attempts.
complete_host_sample(Agent) ->
    #{items := [{host, ok, _, _, #{told := Answers}}]} = Sample = agent_client:sample(Agent, 4, ?HOST),
    case lists:member({error, late}, Answers) of
        true -> complete_host_sample(Agent);
        false -> Sample
    end.

%% The lock counters, for releases with an emulator that counts locks.
lock_counts(none, _) -> io:format("sample-locks not written: no emulator that counts locks~n");
lock_counts(Target, Write) ->
    Node = agent_nodes:node_of(Target),
    Self = self(),
    Busy = spawn(fun() ->
                     agent_nodes:call(Target, contended, [sessions, [{write_concurrency, true}], 1, 1]),
                     Self ! ready,
                     agent_nodes:call(Target, contend, [sessions, 8, 300000])
                 end),
    receive ready -> ok end,
    Agent = agent_client:join(Node, #{}),
    Write("sample-locks", Node, {beamtune, sample, 1, agent_client:sample(Agent, 1, [{locks, #{for_ms => 500, top => 5}}])}),
    agent_client:leave(Agent),
    exit(Busy, kill),
    agent_nodes:stop(Target).

write(Out, Name, Bytes) ->
    ok = file:write_file(filename:join(Out, [Name, ".etf"]), Bytes).
