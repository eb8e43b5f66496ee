%% @doc Tests how clients join, share an agent, renew their lease, leave and die. Afterwards, nothing must be left on the node,
%% even if the agent, its collector or its keeper is killed. Run by agent_test.
-module(agent_clients_test).
-export([tests/0, victim/1]).

-include("agent_test.hrl").

-import(agent_nodes, [spawn_client/1, call/3, call/4, check/2, check/3, clean/1, join/1, join/2, result/1, settled/1, wait/2]).

%% See agent_test:tests/0.
tests() ->
    [{"after_leaving_nothing_is_left_and_no_atoms_are_added", fun leaves_nothing/1},
     {"leaving_during_a_sample_leaves_nothing", fun leaves_while_sampling/1},
     {"killed_clients_leave_nothing", fun killed_clients/1},
     {"a_stopped_client_loses_its_lease", fun lease/1},
     {"a_client_that_renews_keeps_its_lease", fun renew/1},
     {"two_clients_share_one_agent_and_the_last_one_ends_it", fun two_clients/1},
     {"two_clients_that_join_at_once_share_one_agent", fun two_at_once/1},
     {"agent_has_no_more_processes_than_documented", fun agent_processes/1},
     {"a_client_that_joins_while_the_last_one_leaves_gets_an_agent", fun join_while_leaving/1},
     {"a_ninth_client_is_refused", fun too_many_clients/1},
     {"a_killed_agent_is_cleaned_up_and_can_be_injected_again", fun agent_killed/1},
     {"a_killed_collector_costs_one_item", fun collector_killed/1},
     {"a_killed_keeper_leaves_nothing", fun keeper_killed/1}].

%%% Joining and leaving ---------------------------------------------------------------------------------------

leaves_nothing(Target) ->
    Cycle = fun() ->
                Agent = join(Target),
                agent_client:sample(Agent, 1, [facts | ?HOT] ++ ?SLOW),
                check("module", true, maps:get(module, call(Target, state, [agent_client:name()]))),
                check("left", {beamtune, left}, agent_client:leave(Agent)),
                check("clean immediately", ?CLEAN, call(Target, state, [agent_client:name()]))
            end,
    Count = fun() ->
                [call(Target, erlang, system_info, [K]) || K <- [atom_count, ets_count, port_count]]
                    ++ [length(call(Target, erlang, processes, []))]
            end,
    Cycle(),
    Cycle(),
    Before = settled(Count),
    [Cycle() || _ <- lists:seq(1, 10)],
    check("counts of atoms, tables, ports, processes", Before, settled(Count)).

%% A collector continues for a moment after it was ordered to end. What it does in that time must not happen after the cleanup.
leaves_while_sampling(Target) ->
    [begin
         #{agent := Pid} = Agent = join(Target),
         Pid ! {sample, self(), N, lists:duplicate(32, msacc), #{}},
         erlang:yield(),
         {beamtune, left} = agent_client:leave(Agent),
         check({"after leaving", N}, ?CLEAN, call(Target, state, [agent_client:name()]))
     end || N <- lists:seq(1, 100)].

%% A client that samples forever, in a separate VM. Started by kill_one.
victim([Node, Cookie]) ->
    erlang:set_cookie(node(), list_to_atom(Cookie)),
    Target = list_to_atom(Node),
    true = net_kernel:connect_node(Target),
    io:put_chars("joining\n"),
    Agent = agent_client:join(Target, #{}),
    victim_loop(Agent, 1).

victim_loop(Agent, Seq) ->
    agent_client:sample(Agent, Seq, ?HOT ++ ?SLOW),
    victim_loop(Agent, Seq + 1).

%% Kills 24 clients at various times, from the message that injects the agent until they have sampled for some time. The
%% connection ends as if the client's host had crashed.
killed_clients(Target) ->
    agent_client:leave(join(Target)),
    Population = call(Target, idle, [2000]),
    kill_one(Target, 300),
    Count = fun() -> [length(call(Target, erlang, processes, [])), call(Target, erlang, system_info, [port_count])] end,
    Before = settled(Count),
    Atoms = call(Target, erlang, system_info, [atom_count]),
    Times = [kill_one(Target, rand:uniform(MaxMs) - 1) || MaxMs <- [2, 5, 10, 20, 50, 100, 500], _ <- lists:seq(1, 3)]
        ++ [kill_one(Target, 1000) || _ <- lists:seq(1, 3)],
    check("processes and ports", Before, settled(Count)),
    check("atoms", Atoms, call(Target, erlang, system_info, [atom_count])),
    io:format("        clean after ~b ms at the median, ~b ms at most~n",
              [lists:nth(length(Times) div 2, lists:sort(Times)), lists:max(Times)]),
    call(Target, stop, [Population]).

kill_one(#target{node = Node} = Target, AfterMs) ->
    Args = ["-c", "echo $$; exec \"$@\"", "sh", "erl", "-noinput", "-hidden", "-name", "agent_victim_" ++ os:getpid() ++ "@127.0.0.1",
            "-pa", filename:dirname(code:which(?MODULE)),
            "-run", "agent_clients_test", "victim", atom_to_list(Node), atom_to_list(erlang:get_cookie())],
    Port = open_port({spawn_executable, "/bin/sh"}, [{args, Args}, {line, 100}, exit_status]),
    Pid = receive {Port, {data, {eol, P}}} -> P after 10000 -> exit(no_victim) end,
    receive {Port, {data, {eol, "joining"}}} -> ok after 20000 -> exit(victim_does_not_start) end,
    receive after AfterMs -> ok end,
    os:cmd("kill -9 " ++ Pid),
    receive {Port, {exit_status, _}} -> ok after 5000 -> exit(victim_lives) end,
    clean(Target).

lease(Target) ->
    Agent = join(Target, #{lease_ms => 1000}),
    agent_client:sample(Agent, 1, ?HOT),
    #{session := Session} = Agent,
    receive {'EXIT', Session, {beamtune, client_gone}} -> ok after 30000 -> exit(lease_never_ends) end.

renew(Target) ->
    #{agent := Pid} = Agent = join(Target, #{lease_ms => 5000}),
    [begin Pid ! {renew, self()}, receive after 1000 -> ok end end || _ <- lists:seq(1, 6)],
    agent_client:sample(Agent, 1, [counts]),
    {beamtune, left} = agent_client:leave(Agent).

two_clients(Target) ->
    #{agent := Pid} = First = join(Target),
    Second = spawn_client(fun() ->
                       #{agent := Shared, joined := #{shared := IsShared}} = Agent = join(Target),
                       agent_client:sample(Agent, 1, ?HOT),
                       receive go -> ok end,
                       {Shared, IsShared, agent_client:sample(Agent, 2, ?HOT) =/= none, agent_client:leave(Agent)}
                   end),
    wait(fun() -> maps:get(clients, agent_client:sample(First, 1, [procs])) =:= 2 end, 5000),
    {remaining, 1} = agent_client:leave(First),
    check("still loaded", #{scheduler_wall_time => true, module => true, registered => true},
          maps:with([scheduler_wall_time, module, registered], call(Target, state, [agent_client:name()]))),
    Second ! go,
    check("second", {Pid, true, true, {beamtune, left}}, result(Second)),
    %% The first client's session is the keeper, which ends after the last client.
    #{session := Session} = First,
    receive {'EXIT', Session, {beamtune, left}} -> ok after 2000 -> exit(keeper_stays) end.

%% The agent has only the processes that docs/agent-protocol.md lists.
agent_processes(Target) ->
    agent_client:leave(join(Target)),
    Count = fun() -> call(Target, erlang, system_info, [process_count]) end,
    Before = settled(Count),
    Agent = join(Target),
    Grown = fun(Items) ->
                agent_client:sample(Agent, 1, Items),
                settled(Count) - Before
            end,
    check("keeper, agent, collector, reader", 4, Grown([procs | ?SLOW])),
    check("watcher", 5, Grown([events])),
    check("filer", 6, Grown([{host, #{ask => [threads]}}])),
    check("exit monitor", 7, Grown([crashes])),
    Second = member(Target),
    joined(Second),
    check("session, collector, reader", 10, settled(Count) - Before),
    Second ! go,
    result(Second),
    [Idle, Tables] = [call(Target, F, [31000]) || F <- [idle, unnamed_tables]],
    Lists = [list_processes(Target, Agent, N) || N <- lists:seq(1, 300)],
    check("lists", lists:max(Lists), fun(Max) -> Max > 1 andalso Max =< 6 end),
    [call(Target, stop, [P]) || P <- [Idle, Tables]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 10000),
    agent_client:leave(Agent).

%% Returns the number of lists in use or under construction after a sample. Each list has a process.
list_processes(Target, #{agent := Pid} = Agent, Seq) ->
    agent_client:sample(Agent, Seq, [procs, processes, ets]),
    Links = fun(P) -> {links, L} = call(Target, erlang, process_info, [P, links]), L end,
    lists:max([length(Links(P)) || P <- Links(Pid)]) - 2.

two_at_once(Target) ->
    [begin
         Both = [member(Target), member(Target)],
         [Pid, Same] = [joined(P) || P <- Both],
         check("the same agent", Pid, Same),
         [P ! go || P <- Both],
         [result(P) || P <- Both],
         clean(Target)
     end || _ <- lists:seq(1, 10)].

%% Starts a client that joins, sends `joined', and leaves on `go'.
member(Target) ->
    Self = self(),
    spawn_client(fun() ->
              #{agent := Pid} = Agent = join(Target),
              agent_client:sample(Agent, 1, ?HOT),
              Self ! {joined, self(), Pid},
              receive go -> agent_client:leave(Agent) end
          end).

joined(Member) -> receive {joined, Member, Pid} -> Pid after 10000 -> exit(has_not_joined) end.

join_while_leaving(Target) ->
    [begin
         First = join(Target),
         Second = spawn_client(fun() ->
                            receive after Wait -> ok end,
                            Agent = join(Target),
                            agent_client:sample(Agent, 1, ?HOT),
                            agent_client:leave(Agent)
                        end),
         agent_client:leave(First),
         {beamtune, left} = result(Second),
         clean(Target)
     end || Wait <- lists:append(lists:duplicate(6, [0, 1, 2, 3, 5]))].

too_many_clients(Target) ->
    Members = [member(Target) || _ <- lists:seq(1, 8)],
    [joined(M) || M <- Members],
    Session = agent_client:inject(Target#target.node, #{}),
    receive {'EXIT', Session, {beamtune, failed, Why}} -> check("reason", is_binary(Why))
    after 5000 -> exit(not_refused) end,
    [M ! go || M <- Members],
    [result(M) || M <- Members].

%%% Killed processes ------------------------------------------------------------------------------------------

agent_killed(Target) ->
    #{agent := Pid, session := Session} = join(Target),
    exit(Pid, kill),
    receive {'EXIT', Session, {beamtune, agent_ended, Why}} -> check("reason", <<"killed">>, Why)
    after 5000 -> exit(session_stays) end,
    clean(Target),
    Again = join(Target),
    agent_client:sample(Again, 1, ?HOT),
    agent_client:leave(Again).

collector_killed(Target) ->
    #{agent := Pid} = Agent = join(Target),
    agent_client:sample(Agent, 1, ?HOT -- [events, crashes]),
    {links, [Collector]} = call(Target, erlang, process_info, [Pid, links]),
    exit(Collector, kill),
    Sample = agent_client:sample(Agent, 2, ?HOT),
    check("restarts", 1, maps:get(restarts, maps:get(agent, Sample))),
    agent_client:leave(Agent).

keeper_killed(Target) ->
    #{session := Keeper} = Agent = join(Target),
    agent_client:sample(Agent, 1, ?HOT),
    exit(Keeper, kill),
    receive {'EXIT', Keeper, killed} -> ok after 5000 -> exit(session_stays) end,
    clean(Target),
    Again = join(Target),
    agent_client:sample(Again, 1, ?HOT),
    agent_client:leave(Again).
