%% @doc Tests difficult nodes: processes that hang, overload, very large numbers of objects, unusual names, and objects that
%% vanish while they are read. Run by agent_test.
-module(agent_hard_nodes_test).
-export([tests/0]).

-include("agent_test.hrl").

-import(agent_nodes, [spawn_client/1, call/3, call/4, check/2, check/3, items/1, join/1, result/1, value/2, wait/2]).

%% See agent_test:tests/0.
tests() ->
    [{"a_process_that_hangs_is_skipped", fun hanging_process/1},
     {"a_client_that_joins_during_a_long_purge_receives_waiting", fun long_purge/1},
     {"with_many_processes_the_module_stays_until_the_run_queues_are_short", fun delayed_purge/1},
     {"no_item_times_out_on_an_overloaded_node", fun overloaded/1},
     {"items_report_no_numbers_until_a_long_list_is_ready", fun long_lists/1},
     {"long_lists_are_built_one_after_the_other", fun one_list_at_a_time/1},
     {"messages_of_a_process_with_a_million_of_them_are_not_copied", fun flooded/1},
     {"unusual_names_and_labels_are_bounded_utf8", fun unusual_names/1},
     {"tables_may_be_deleted_during_a_scan", fun vanishing_tables/1},
     {"processes_may_start_and_end_during_a_scan", fun churn/1}].

hanging_process(Target) ->
    Pid = call(Target, hanging, []),
    Depth = call(Target, depth, []),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs]),
    %% The process occupies one scheduler for some seconds. The busy processes keep the other schedulers awake, so that they take
    %% over that scheduler's work.
    Busy = call(Target, busy, [8]),
    wait(fun() -> lists:min(lists:droplast(call(Target, erlang, statistics, [active_tasks]))) > 1 end, 5000),
    call(Target, hang, [Pid, Depth]),
    Bin = list_to_binary(call(Target, erlang, pid_to_list, [Pid])),
    Sample = agent_client:sample(Agent, 2, [procs, counts]),
    {procs, ok, _, Cost, Value} = lists:keyfind(procs, 1, items(Sample)),
    check("skipped", [Bin], [P || {P, _} <- maps:get(skipped, Value)]),
    check("the others are read, and the round continues", {2, true}, {maps:get(round, Value), maps:is_key(delta_reductions, Value)}),
    %% An item that takes 2 s would be aborted.
    check("in time", Cost < 2000000),
    #{processes := _} = value(counts, Sample),
    Next = agent_client:sample(Agent, 3, [procs]),
    check("still skipped", [Bin], [P || {P, _} <- maps:get(skipped, value(procs, Next))]),
    check("no restarts", 0, maps:get(restarts, maps:get(agent, Next))),
    %% A purge waits for every process, so the one that hangs must end first.
    call(Target, stop, [Pid]),
    agent_client:leave(Agent),
    call(Target, stop, [Busy]).

long_purge(Target) ->
    Pid = call(Target, hanging, []),
    Depth = call(Target, depth, []),
    Busy = call(Target, busy, [8]),
    wait(fun() -> lists:min(lists:droplast(call(Target, erlang, statistics, [active_tasks]))) > 1 end, 5000),
    #{agent := Agent} = join(Target),
    call(Target, hang, [Pid, Depth]),
    Agent ! {leave, self()},
    receive {beamtune, left, #{remaining := 0}} -> ok after 5000 -> exit(no_answer) end,
    Second = spawn_client(fun() ->
                       Joined = join(Target),
                       receive {beamtune, waiting} -> ok after 0 -> exit(waiting_not_received) end,
                       agent_client:leave(Joined)
                   end),
    {beamtune, left} = result(Second),
    [call(Target, stop, [P]) || P <- [Pid, Busy]].

delayed_purge(Target) ->
    [Idle, Busy] = [call(Target, idle, [5000]), call(Target, busy, [16])],
    wait(fun() -> call(Target, erlang, statistics, [total_run_queue_lengths]) > 4 end, 5000),
    [begin
         {beamtune, left} = agent_client:leave(join(Target)),
         %% Leaving does not wait until the run queues are short.
         check("all but the module", ?CLEAN#{module => true}, call(Target, state, [agent_client:name()]))
     end || _ <- [1, 2]],
    call(Target, stop, [Busy]),
    wait(fun() -> call(Target, state, [agent_client:name()]) =:= ?CLEAN end, 5000),
    call(Target, stop, [Idle]).

overloaded(Target) ->
    Busy = call(Target, busy, [200]),
    Agent = join(Target),
    [begin
         Sample = agent_client:sample(Agent, N, ?HOT ++ ?SLOW),
         check("all ok", [], [I || I <- items(Sample), element(2, I) =/= ok])
     end || N <- [1, 2, 3]],
    agent_client:leave(Agent),
    call(Target, stop, [Busy]).

%% Lists are built at priority normal, which takes long on an overloaded node.
long_lists(Target) ->
    [Idle, Tables] = [call(Target, F, [40000]) || F <- [idle, unnamed_tables]],
    Busy = call(Target, busy, [400]),
    Agent = join(Target),
    First = agent_client:sample(Agent, 1, [procs, processes, ets]),
    [begin
         check({Item, "not read yet"}, #{scanned => 0, part => 0, last => false},
               maps:with([scanned, part, last], Value)),
         check({Item, "total"}, maps:get(total, Value), fun(Total) -> Total > 40000 end),
         check({Item, "microseconds"}, Us, fun(_) -> Us < 250000 end)
     end || {Item, ok, _, Us, Value} <- items(First)],
    check("no sums", [], maps:keys(maps:with([memory_bytes, unread], value(ets, First)))),
    %% The lists are used when they are ready; building them is not restarted in each sample.
    [wait(fun() ->
              Value = value(Item, agent_client:sample(Agent, 2, [procs, Item])),
              maps:get(scanned, Value) > 0 andalso maps:get(total, Value) > 40000
          end, 60000) || Item <- [procs, processes, ets]],
    call(Target, stop, [Busy]),
    %% Each round reads all tables.
    Parts = table_parts(Agent, 3),
    [#{total := Total} | _] = Second = [P || #{round := 2} = P <- Parts],
    check("the whole list", Total, lists:sum([maps:get(scanned, P) || P <- Second])),
    [call(Target, stop, [P]) || P <- [Idle, Tables]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 10000),
    agent_client:leave(Agent).

one_list_at_a_time(Target) ->
    [Idle, Tables] = [call(Target, F, [40000]) || F <- [idle, unnamed_tables]],
    Busy = call(Target, busy, [100]),
    #{agent := Pid} = Agent = join(Target),
    Pid ! {sample, self(), 1, [procs, ets], #{}},
    {#{end_ns := End}, Counts} = count_list_builders(Target, Pid, []),
    check("none during a sample", [], [C || {N, At} = C <- Counts, N > 0, At < End]),
    wait(fun() ->
             Sample = agent_client:sample(Agent, 2, [procs, ets]),
             check("one at a time", call(Target, list_builders, [Pid]), fun({N, _}) -> N =< 1 end),
             lists:all(fun(Item) -> maps:get(scanned, value(Item, Sample)) > 0 end, [procs, ets])
         end, 60000),
    [call(Target, stop, [P]) || P <- [Busy, Idle, Tables]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 10000),
    agent_client:leave(Agent).

%% Counts the list builders repeatedly until the first sample arrives.
count_list_builders(Target, Pid, Counts) ->
    receive {beamtune, sample, 1, Sample} -> {Sample, Counts}
    after 0 -> count_list_builders(Target, Pid, [call(Target, list_builders, [Pid]) | Counts])
    end.

%% Returns the answers of `ets' until it begins this round.
table_parts(Agent, Round) ->
    case value(ets, agent_client:sample(Agent, 3, [ets])) of
        #{round := Round} -> [];
        Value -> [Value | table_parts(Agent, Round)]
    end.

flooded(Target) ->
    Pid = call(Target, flood, [1000000]),
    Bin = list_to_binary(call(Target, erlang, pid_to_list, [Pid])),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, processes]),
    Sample = agent_client:sample(Agent, 2, [procs, processes]),
    #{queue_max := 1000000, top_queues := [{Bin, 1000000, _, _} | _]} = value(procs, Sample),
    [Row] = [R || #{pid := P} = R <- maps:get(rows, value(processes, Sample)), P =:= Bin],
    #{message_queue_len := 1000000, by := By} = Row,
    check("listed for its queue", lists:member(queue, By)),
    %% No message was copied, so the agent's memory stays small.
    check("memory", maps:get(memory_bytes, maps:get(agent, Sample)), fun(Bytes) -> Bytes < 2000000 end),
    agent_client:leave(Agent),
    call(Target, erlang, exit, [Pid, kill]).

unusual_names(#target{release = Release} = Target) ->
    Long = list_to_atom(lists:duplicate(255, 16#1F98A)),
    Elixir = 'Elixir.My.Größe',
    Control = list_to_atom("a\e[31m\n\0b"),
    Pids = [call(Target, named, [Name]) || Name <- [Long, Elixir, Control]],
    Tables = call(Target, tables, [[list_to_atom("tab_" ++ lists:duplicate(200, 16#4E2D)), 'my table']]),
    Deep = lists:foldl(fun(N, T) -> {N, T, <<0:80000>>} end, [], lists:seq(1, 2000)),
    Labels = [Deep, <<"größe"/utf8>>, <<255, 254, 0>>, "größe", [1 | 2], #{key => lists:seq(1, 100000)}, {my_worker, 7}],
    Labelled = [call(Target, labelled, [L]) || Release >= 27, L <- Labels],
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [procs, {processes, #{top => 50}}, {ets, #{top => 50}}]),
    Rows = maps:get(rows, value(processes, Sample)),
    Names = [N || #{name := N} <- Rows],
    check("cut", true, lists:any(fun(N) -> byte_size(N) =:= 252 end, Names)),
    check("elixir", true, lists:member(<<"Elixir.My.Größe"/utf8>>, Names)),
    check("control", true, lists:member(<<"a\e[31m\n\0b">>, Names)),
    check("utf8", [], [N || N <- Names, unicode:characters_to_binary(N) =/= N orelse byte_size(N) > 255]),
    check("table", true, lists:member(<<"my table">>, [N || #{name := N, named := true} <- maps:get(rows, value(ets, Sample))])),
    Texts = [L || #{label := L} <- Rows],
    check("labels", length(Labelled), length(Texts)),
    check("bounded", [], [T || T <- Texts, byte_size(T) > 512 orelse unicode:characters_to_binary(T) =/= T]),
    Release >= 27 andalso check("plain labels", [], [<<"größe"/utf8>>, <<"{my_worker,7}">>, <<"[1|2]">>] -- Texts),
    agent_client:leave(Agent),
    [call(Target, stop, [P]) || P <- [Tables | Pids ++ Labelled]].

vanishing_tables(Target) ->
    Churn = call(Target, churn_tables, [4]),
    Agent = join(Target),
    [begin
         Sample = agent_client:sample(Agent, N, [ets]),
         #{total := _} = value(ets, Sample)
     end || N <- lists:seq(1, 50)],
    agent_client:leave(Agent),
    call(Target, stop, [Churn]).

churn(Target) ->
    Churn = call(Target, churn_processes, [4]),
    Idle = call(Target, idle, [1000]),
    Agent = join(Target),
    Samples = [agent_client:sample(Agent, N, [procs, processes, spawns]) || N <- lists:seq(1, 30)],
    [check("no negative numbers", value(procs, S),
           fun(#{new := New, gone := Gone, scanned := Scanned} = V) ->
               New >= 0 andalso Gone >= 0 andalso Scanned > 0 andalso maps:get(delta_reductions, V, 0) >= 0
           end) || S <- Samples],
    call(Target, stop, [Churn]),
    call(Target, stop, [Idle]),
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 200 end, 10000),
    agent_client:leave(Agent).
