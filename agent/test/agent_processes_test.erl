%% @doc Tests of the items about processes, tables, ports, connections and brokers. They check that rounds and counts are exact,
%% which processes are found, what these execute and wait for, their messages, and their exits. Run by agent_test.
-module(agent_processes_test).
-export([tests/0]).

-include("agent_test.hrl").

-import(agent_nodes, [call/3, call/4, check/2, check/3, items/1, join/1, join/2, node_of/1, start/4, stop/1, value/2, wait/2]).

%% See agent_test:tests/0.
tests() ->
    [{"deltas_new_and_gone_are_exact", fun exact/1},
     {"rounds_in_parts_with_a_small_budget_are_exact_too", fun exact_in_parts/1},
     {"a_busy_process_among_many_is_found_after_one_round", fun busy_among_many/1},
     {"new_processes_are_reported_with_their_parents", fun new_processes/1},
     {"new_processes_are_sampled_again", fun sampled_again/1},
     {"new_processes_with_large_arguments_are_reported", fun large_arguments/1},
     {"prefixes_of_new_atoms_are_reported", fun new_atoms/1},
     {"waiting_processes_are_reported_with_the_blocking_process", fun waiting_for/1},
     {"a_process_with_many_monitors_waits_for_the_one_with_its_message", fun waiting_behind_another/1},
     {"links_and_monitors_are_not_read_if_their_number_is_unknown", fun waiting_for_a_hub/1, ["+MFe", "false"]},
     {"stacks_of_the_busiest_processes_while_they_wait_are_reported", fun waiting_while_working/1},
     {"stack_of_the_process_with_the_longest_queue_is_reported", fun waiting_with_messages/1},
     {"very_many_processes_are_sampled", fun sample_of_many/1},
     {"binaries_of_tables_are_measured_if_there_are_many", fun binaries_of_tables/1},
     {"receive_buffers_are_measured_if_there_are_many_binaries", fun receive_buffers/1},
     {"growing_tables_are_followed_and_objects_of_ended_processes_reported", fun growing_tables/1},
     {"ports_of_external_programs_are_counted", fun ports_of_programs/1},
     {"sockets_that_outlive_their_process_are_counted", fun disowned_sockets/1},
     {"tracers_are_reported", fun traces/1},
     {"attempts_to_connect_to_a_stopped_node_are_counted", fun attempts_to_connect/1},
     {"reconnections_are_counted", fun reconnections/1},
     {"counters_of_mnesia_are_reported", fun mnesia/1},
     {"counters_of_rabbitmq_queues_and_clients_are_reported", fun broker/1},
     {"received_messages_are_weighed", fun weighed_messages/1},
     {"short_lived_processes_are_found_by_random_samples", fun random_samples/1},
     {"a_child_that_crashes_is_reported_with_its_supervisor_and_the_reason", fun crashes/1, [], prints},
     {"a_child_whose_call_times_out_is_reported_with_the_callee", fun call_timeout/1, [], prints},
     {"a_child_that_the_vm_kills_is_reported_with_its_heap_limit", fun killed/1, [], prints},
     {"normal_exits_are_only_counted", fun normal_exits/1, [], prints},
     {"siblings_terminated_with_a_failed_child_are_named", fun siblings/1, [], prints},
     {"a_huge_exit_reason_kills_only_the_exit_monitor", fun huge_reason/1},
     {"processes_that_end_immediately_are_counted", fun short_lived/1},
     {"spawned_processes_are_counted_when_the_process_table_wraps_around", fun small_table/1, ["+P", "1024"]},
     {"the_largest_and_busiest_processes_are_reported", fun top_processes/1}].

%%% Rounds ----------------------------------------------------------------------------------------------------

%% On an idle node, every number can be compared with the true value. Two rounds follow each change, because a round that finds as
%% many processes as before uses its old list.
exact(Target) -> exact(Target, 1000000, 1000).

exact(Target, Budget, Count) ->
    Population = call(Target, population, [Count]),
    Agent = join(Target, #{budget_ppm => Budget}),
    Before = maps:from_list(ask(Population, work)),
    _ = whole_rounds(Agent, 2),
    lists:foldl(fun({End, Start}, Known) ->
                    {Started, Ended} = ask(Population, {turnover, End, Start}),
                    Expected = maps:from_list(ask(Population, work)),
                    Values = whole_rounds(Agent, 2),
                    Sum = fun(Key) -> lists:sum([maps:get(Key, V) || V <- Values]) end,
                    check({new, End, Start}, Started, Sum(new)),
                    check({gone, End, Start}, Ended, Sum(gone)),
                    Deltas = lists:foldl(fun({Pid, D, _, _}, Map) -> maps:update_with(Pid, fun(B) -> B + D end, D, Map) end,
                                         #{}, lists:append([maps:get(top_reductions, V) || V <- Values])),
                    Worked = maps:filter(fun(_, D) -> D > 1500 end,
                                         maps:map(fun(Pid, R) -> R - maps:get(Pid, Known, 0) end, Expected)),
                    check("number that worked", map_size(Worked), fun(N) -> N > 30 end),
                    %% Reading a process may make it execute a reduction or two.
                    Wrong = [{Pid, D, maps:get(Pid, Deltas, none)}
                             || {Pid, D} <- maps:to_list(Worked), abs(D - maps:get(Pid, Deltas, 0)) > 5],
                    check({"deltas", End, Start}, [], Wrong),
                    Expected
                end, Before, [{0, 0}, {10, 0}, {0, 10}, {10, 10}, {300, 300}, {200, 0}, {0, 400}, {1, 1}, {500, 100}, {0, 0}]),
    agent_client:leave(Agent),
    call(Target, stop, [Population]).

exact_in_parts(Target) -> exact(Target, 100, 3000).

%% Returns all parts of this number of rounds.
whole_rounds(_, 0) -> [];
whole_rounds(Agent, Rounds) ->
    Value = value(procs, agent_client:sample(Agent, Rounds, [{procs, #{top => 100}}])),
    [Value | whole_rounds(Agent, case maps:get(last, Value) of true -> Rounds - 1; false -> Rounds end)].

broker(Target) ->
    Before = join(Target),
    [check({"no broker", Item}, #{}, value(Item, agent_client:sample(Before, 1, [broker, broker_clients]))) || Item <- [broker, broker_clients]],
    agent_client:leave(Before),
    Broker = call(Target, broker, []),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, broker]),
    Sample = agent_client:sample(Agent, 2, [procs, broker, broker_clients, processes]),
    check("totals", #{connections => 1, channels => 1, consumers => 1, queues => 2, connections_opened => 5, connections_closed => 4,
                      channels_opened => 9, channels_closed => 7, queues_declared => 3, queues_created => 2, queues_deleted => 1,
                      logins => 5, logins_failed => 3}, value(broker, Sample)),
    Clients = value(broker_clients, Sample),
    check("sums", [9, 30, 1, 0, 1], [maps:get(K, Clients) || K <- [ready, unacked, disk_alarm, memory_alarm, blocked]]),
    check("dead letters, without dropped messages", [20, 1000, 33, 44, 5, none],
          [maps:get(K, Clients, none) || K <- [published, delivered, dead_lettered_expired, dead_lettered_rejected, dead_lettered_maxlen,
                                               dead_lettered_delivery_limit]]),
    Name = <<"10.0.0.7:41000 -> 10.0.0.1:5672 - worker">>,
    [Orders, Mail] = lists:reverse(lists:sort(fun(A, B) -> maps:get(ready, A) =< maps:get(ready, B) end, maps:get(queue_rows, Clients))),
    check("a queue", #{name => <<"orders">>, ready => 7, unacked => 30, consumers => 1, prefetch => 30, unlimited => 0, delivered => 1000,
                       redelivered => 900, acknowledged => 50, clients => [{Name, <<"app">>, 1000, 900, 50, 30}]}, Orders),
    check("a queue of another virtual host", {<<"mail in vhost v">>, 30000000000, 1000}, {maps:get(name, Mail), maps:get(ttl_ns, Mail), maps:get(max_length, Mail)}),
    check("connections", [{Name, <<"app">>, 2, true}], maps:get(connection_rows, Clients)),
    Labels = [maps:get(label, Row, none) || Row <- maps:get(rows, value(processes, agent_client:sample(Agent, 3, [procs, {processes, #{top => 50}}])))],
    check("labels from the process dictionary and from the table of queues", [true, true],
          [lists:member(Label, Labels) || Label <- [<<"queue orders">>, <<"queue mail in vhost v">>]]),
    agent_client:leave(Agent),
    call(Target, stop, [Broker]).

ports_of_programs(Target) ->
    Agent = join(Target),
    Count = fun() -> maps:get(programs, value(ports, agent_client:sample(Agent, 1, [ports]))) end,
    Before = Count(),
    Programs = call(Target, programs, [3]),
    check("with three more", Before + 3, Count()),
    call(Target, stop, [Programs]),
    wait(fun() -> Count() =:= Before end, 5000),
    agent_client:leave(Agent).

disowned_sockets(Target) ->
    Agent = join(Target),
    Sample = fun() -> maps:get(ended, value(ports, agent_client:sample(Agent, 1, [ports]))) end,
    #{sampled := Before, ended := 0, queue_bytes := 0} = Sample(),
    Peers = call(Target, unsent_data, [3]),
    #{sockets := Sockets, sampled := Sampled, ended := 3, queue_bytes := Bytes} = Sample(),
    check("all sockets are sampled", {Sampled, Before + 7}, {Sockets, Sampled}),
    check("unsent bytes", Bytes, fun(B) -> B > 3 * 1000000 end),
    call(Target, stop, [Peers]),
    wait(fun() -> maps:get(ended, Sample()) =:= 0 end, 5000),
    %% With many sockets, 100 are chosen at random.
    Many = call(Target, unsent_data, [60]),
    #{sampled := 100, ended := Ended} = Sample(),
    check("in a sample", Ended, fun(E) -> E > 25 andalso E < 60 end),
    call(Target, stop, [Many]),
    agent_client:leave(Agent).

%% Before OTP 27, there is only one trace session. Since then, a second session is used, too.
traces(#target{release = Release} = Target) ->
    Busy = call(Target, busy, [2]),
    Agent = join(Target),
    Sample = fun(N) -> value(traces, lists:last([agent_client:sample(Agent, N, [procs, ran, traces]) || _ <- [1, 2]])) end,
    #{rows := []} = Sample(1),
    Tracers = call(Target, traces, [Busy]),
    Pids = [list_to_binary(call(Target, erlang, pid_to_list, [T])) || T <- call(Target, tracers, [Tracers])],
    Names = case Release >= 27 of true -> [<<>>, <<"agent_test">>]; false -> [<<>>] end,
    wait(fun() ->
             #{rows := Rows, sampled := Sampled} = Sample(2),
             check("bounded", Sampled, fun(S) -> S =< 25 end),
             lists:sort([{S, T, New, Flags} || #{session := S, tracer := T, new := New, flags := Flags, traced := N} <- Rows, N > 0 orelse New])
                 =:= lists:sort([{S, T, S =:= <<>>, [garbage_collection]} || {S, T} <- lists:zip(Names, Pids)])
         end, 10000),
    Rows = maps:get(rows, value(processes, agent_client:sample(Agent, 3, [processes]))),
    check("rows of the tracers", [], Pids -- [P || #{pid := P, by := By} <- Rows, lists:member(tracer, By)]),
    call(Target, stop, [Tracers]),
    wait(fun() -> maps:get(rows, Sample(4)) =:= [] end, 5000),
    call(Target, stop, [Busy]),
    agent_client:leave(Agent).

%% A table is reported only after it has grown, and only the pids in its objects are read. Of tables that are not readable, or
%% whose first objects are not a fair sample, only the size is reported.
growing_tables(Target) ->
    Agent = join(Target),
    Sample = fun() -> value(table_growth, agent_client:sample(Agent, 1, [table_growth])) end,
    check("before `ets'", #{followed => 0, rows => [], ended => []}, Sample()),
    Tables = call(Target, growing_tables, []),
    %% With top => 1, most tables are not among the largest, and are found by their growth.
    agent_client:sample(Agent, 2, [{ets, #{top => 1}}]),
    Add = fun(From) -> call(Target, add_rows, [Tables, From, 60, 140]) end,
    Add(1),
    check("followed, and none has grown since", maps:get(rows, Sample()), fun(Rows) -> [N || {N, _, _} <- Rows, N =/= <<"shut">>] =:= [] end),
    Add(201),
    #{rows := Rows} = Sample(),
    Names = [<<"by_key">>, <<"by_part">>, <<"by_pid">>, <<"by_time">>, <<"by_value">>, <<"of_none">>, <<"packed">>],
    check("rows", [{N, 400} || N <- Names], lists:sort([{N, Size} || {N, Size, _} <- Rows, lists:member(N, Names)])),
    [check({"bytes", N}, 400 * 100, fun(Min) -> Bytes > Min end) || {N, _, Bytes} <- Rows, lists:member(N, Names)],
    Ended = sample_until(Sample, fun(Found) -> length(lists:usort([element(1, E) || E <- Found])) >= 4 end, Add, 401, []),
    Where = #{<<"by_pid">> => key, <<"by_part">> => in_key, <<"by_value">> => element},
    [check({"sampled", Name}, {100, Place}, fun({All, P}) -> All =:= Sampled andalso P =:= Place
                                                     andalso (Pids =:= 100 andalso Gone >= 45 andalso Gone =< 95) end)
     || {Name, Sampled, Place, Pids, Gone} <- Ended, maps:is_key(Name, Where), Place =:= maps:get(Name, Where)],
    check("place of the pid", [], maps:to_list(Where) -- [{N, P} || {N, _, P, _, _} <- Ended]),
    check("without pids", [{none, 0, 0}], lists:usort([{P, Pids, Gone} || {<<"of_none">>, _, P, Pids, Gone} <- Ended])),
    check("others are not sampled", [], [N || {N, _, _, _, _} <- Ended, lists:member(N, [<<"by_time">>, <<"by_key">>, <<"shut">>, <<"packed">>])]),
    %% `ets' has rows about them once they are among the largest ones.
    #{rows := Known} = value(ets, agent_client:sample(Agent, 3, [{ets, #{top => 50}}])),
    check("rows of `ets'", [], Names -- [N || #{name := N} <- Known]),
    check("owners", [{<<"agent_target">>, <<>>}],
          lists:usort([{Module, maps:get(application, Row, <<>>)} || #{module := Module, name := N} = Row <- Known, lists:member(N, Names)])),
    Sample(),
    Size = call(Target, ets, info, [spread, size]),
    Add(Size + 1),
    check("decentralized counters", {value, {<<"spread">>, Size + 200}},
          case lists:keyfind(<<"spread">>, 1, maps:get(rows, Sample())) of {N, S, _} -> {value, {N, S}}; false -> none end),
    call(Target, stop, [Tables]),
    check("deleted", maps:get(rows, Sample()), fun(Left) -> [N || {N, _, _} <- Left, lists:member(N, Names)] =:= [] end),
    agent_client:leave(Agent).

%% Takes samples while the tables grow, until enough was found: at most three tables are sampled in ten seconds.
sample_until(_, _, _, From, _) when From > 20000 -> exit(too_long);
sample_until(Sample, IsEnough, Add, From, Found) ->
    Add(From),
    #{ended := Ended} = Sample(),
    check("one at a time", length(Ended), fun(N) -> N =< 1 end),
    case IsEnough(Ended ++ Found) of
        true -> Ended ++ Found;
        false -> receive after 300 -> sample_until(Sample, IsEnough, Add, From + 200, Ended ++ Found) end
    end.

%% Attempts are counted by the number of the connection. The processes that requested them are reported by name.
attempts_to_connect(Target) ->
    Stopped = 'gone@127.0.0.1',
    Agent = join(Target),
    Read = fun(N) ->
               receive after 20 -> ok end,
               value(dist, agent_client:sample(Agent, N, [counts, memory, statistics, run_queues, dist]))
           end,
    #{connecting := #{samples := 1, rows := []}, unconnected := #{nodes := Unconnected}} = Read(1),
    check("not known yet", false, lists:member(atom_to_binary(Stopped, utf8), Unconnected)),
    Connector = call(Target, connector, [its_connector, Stopped]),
    Rows = [Row || N <- lists:seq(2, 60), #{connecting := #{rows := Rows1}} <- [Read(N)], #{attempts := Count} = Row <- Rows1, Count > 0],
    #{unconnected := #{total := Total, nodes := Known}} = Read(61),
    check("known, not connected", Total >= 1 andalso lists:member(atom_to_binary(Stopped, utf8), Known)),
    Sum = fun(Key) -> lists:sum([maps:get(Key, Row) || Row <- Rows]) end,
    check("only that node", [atom_to_binary(Stopped, utf8)], lists:usort([maps:get(node, Row) || Row <- Rows])),
    check("outgoing attempts only", {true, 0}, {Sum(out) > 1, Sum(in)}),
    check("more attempts than samples found", Sum(attempts) > Sum(out)),
    check("samples with an attempt", Sum(samples) =< 59),
    check("not connected", [false], lists:usort([maps:get(connected, Row) || Row <- Rows])),
    check("requesting process", [<<"its_connector">>], lists:usort([Title || #{askers := Askers} <- Rows, {Title, _} <- Askers])),
    check("steps reached", [], lists:usort([Step || #{steps := Steps} <- Rows, {Step, _} <- Steps]) -- [connect, epmd, resolve]),
    call(Target, stop, [Connector]),
    agent_client:leave(Agent).

reconnections(#target{release = Release, root = Root, beams = Beams} = Target) ->
    #target{node = Node} = Other = start(integer_to_list(Release), Root, Beams, []),
    Connect = fun() -> wait(fun() -> true =:= call(Target, net_kernel, connect_node, [Node]) end, 5000) end,
    Connect(),
    Agent = join(Target),
    Read = fun(N) -> maps:get(connecting, value(dist, agent_client:sample(Agent, N, [counts, dist]))) end,
    check("connections that stay up", [#{again => [], again_samples => 0}], lists:usort([maps:with([again, again_samples], Read(N)) || N <- [1, 2, 3]])),
    Reconnect = fun(N) ->
                    call(Target, erlang, disconnect_node, [Node]),
                    wait(fun() -> not lists:member(Node, call(Target, erlang, nodes, [])) end, 5000),
                    agent_client:sample(Agent, N, [counts]),
                    Connect(),
                    agent_client:sample(Agent, N + 1, [counts])
                end,
    [Reconnect(N) || N <- [4, 6, 8]],
    #{again := Reconnections, again_samples := Samples} = Read(10),
    check("each reconnection", {[{atom_to_binary(Node, utf8), 3}], 3}, {Reconnections, Samples}),
    agent_client:leave(Agent),
    stop(Other).

%% Numbers per table. Of objects: all, sampled, and those with terms that may hide binaries. Of binaries: number, size, size of
%% the binaries of which they are sub-binaries, and bytes to which only the table's objects refer.
binaries_of_tables(Target) ->
    Agent = join(Target),
    Sample = fun(N) -> value(table_growth, agent_client:sample(Agent, N, [memory, table_growth])) end,
    agent_client:sample(Agent, 1, [{ets, #{top => 1}}]),
    check("not measured with few binaries", false, maps:is_key(binaries, Sample(1))),
    Tables = call(Target, binary_tables, []),
    agent_client:sample(Agent, 2, [{ets, #{top => 1}}]),
    Samples = [Sample(3) || _ <- lists:seq(1, 15)],
    check("few at a time", true, lists:all(fun(#{binaries := B}) -> length(B) =< 3 end, Samples)),
    All = lists:append([B || #{binaries := B} <- Samples]),
    check("each once", length(All), fun(N) -> N =:= length(lists:usort([element(1, B) || B <- All])) end),
    Of = fun(Table) -> case lists:keyfind(Table, 1, All) of false -> exit({not_measured, Table}); Found -> tl(tuple_to_list(Found)) end end,
    check("binaries", [200, 100, 0, 100, 20000000, 20000000, 20000000], Of(<<"of_whole">>)),
    check("sub-binaries", [300, 100, 0, 100, 10000, 1000000, 1000000], Of(<<"of_parts">>)),
    check("sub-binaries of one binary", Of(<<"of_shared">>),
          fun([1000, 100, 0, 100, 10000, 100000000, Held]) -> Held * 10 > 500000 andalso Held * 10 < 1500000 end),
    check("within a tuple", [100, 100, 0, 100, 500000, 500000, 500000], Of(<<"of_nested">>)),
    check("hidden binaries", [[100, 30, 30, 0, 0, 0, 0]], lists:usort([Of(Table) || Table <- [<<"of_maps">>, <<"of_lists">>]])),
    check("small binaries", [100, 100, 0, 0, 0, 0, 0], Of(<<"of_small">>)),
    check("not readable", [[100, 0, 0, 0, 0, 0, 0]], lists:usort([Of(Table) || Table <- [<<"of_bag">>, <<"of_packed">>, <<"of_private">>]])),
    Holders = [Row || #{holders := Rows} <- Samples, Row <- Rows],
    check("holders", [<<"of_nested">>, <<"of_parts">>, <<"of_shared">>, <<"of_whole">>],
          lists:sort([Name || #{name := <<"of_", _/binary>> = Name, owner := _, memory_bytes := _} <- Holders])),
    %% The agent keeps no references.
    call(Target, stop, [Tables]),
    wait(fun() -> call(Target, erlang, memory, [binary]) < 20000000 end, 5000),
    agent_client:leave(Agent).

receive_buffers(Target) ->
    Agent = join(Target),
    Sample = fun(N) -> value(ports, lists:last([agent_client:sample(Agent, N, [memory, ports])])) end,
    check("not measured with few binaries", false, maps:is_key(buffers, Sample(1))),
    Sockets = call(Target, passive_sockets, [40, 1000000]),
    #{buffers := Buffers} = Sample(2),
    check("of sockets in passive mode", #{passive => 40, bytes => 40000000}, Buffers),
    check("memory of these buffers", call(Target, erlang, memory, [binary]), fun(Bytes) -> Bytes > 40000000 end),
    call(Target, stop, [Sockets]),
    agent_client:leave(Agent).

%% Uses Mnesia's tables, but not Mnesia.
mnesia(Target) ->
    Agent = join(Target),
    Sample = fun(N) -> {value(counts, agent_client:sample(Agent, N, [counts])), value(dist, agent_client:sample(Agent, N, [dist]))} end,
    {Without, #{mnesia := []}} = Sample(1),
    check("without Mnesia", false, maps:is_key(mnesia, Without)),
    Mnesia = call(Target, mnesia, []),
    {#{mnesia := Counters}, #{mnesia := []}} = Sample(2),
    check("counters", #{commits => 1, restarts => 2, failures => 3, log_writes => 2040, log_dumped => 1000, log_threshold => 100}, Counters),
    call(Target, stop, [Mnesia]),
    agent_client:leave(Agent).

%% With that many processes, a round takes several samples, and a separate process rebuilds their list now and then. A process
%% that is busy from the start is reported in the sample after the first round. A new process is reported after the list was
%% rebuilt and a round has ended, and in every sample from then on.
busy_among_many(Target) ->
    Idle = call(Target, idle, [100000]),
    First = call(Target, busy, [1]),
    Agent = join(Target),
    check("busy from the start", found_in_rounds(First, Agent, 1) orelse found(First, Agent)),
    check("in every sample", [true, true, true], [found(First, Agent) || _ <- [1, 2, 3]]),
    call(Target, stop, [First]),
    Later = call(Target, busy, [1]),
    check("busy later", found_in_rounds(Later, Agent, 4)),
    check("in every later sample", [true, true, true], [found(Later, Agent) || _ <- [1, 2, 3]]),
    agent_client:leave(Agent),
    %% With that many processes, a purge would delay others. The next client that leaves when there are fewer purges the module.
    check("all but the module", ?CLEAN#{module => true}, call(Target, state, [agent_client:name()])),
    [call(Target, stop, [P]) || P <- [Idle, Later]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 5000),
    agent_client:leave(join(Target)).

%% Returns whether the process started by Keeper is among the top processes of the next sample.
found(Keeper, Agent) -> element(1, found_or_last(Keeper, Agent)).

%% Returns whether the process is found before this number of rounds has ended. One round may have begun before the process did,
%% and one more may still use an older list. The number of samples in a round depends on the host.
found_in_rounds(_, _, 0) -> false;
found_in_rounds(Keeper, Agent, Rounds) ->
    case found_or_last(Keeper, Agent) of
        {true, _} -> true;
        {false, Last} -> found_in_rounds(Keeper, Agent, case Last of true -> Rounds - 1; false -> Rounds end)
    end.

found_or_last(Keeper, Agent) ->
    {links, Links} = rpc:call(node(Keeper), erlang, process_info, [Keeper, links]),
    Pids = [list_to_binary(rpc:call(node(Keeper), erlang, pid_to_list, [P])) || P <- Links],
    timer:sleep(1000),
    #{top_reductions := Top, last := Last} = value(procs, agent_client:sample(Agent, 1, [procs])),
    {lists:any(fun({Pid, Delta, _, _}) -> lists:member(Pid, Pids) andalso Delta > 100000 end, Top), Last}.

%% Sends a message. A call would spawn a process on the target, which would be counted as a new process and as one that is gone.
ask(Population, Question) ->
    Population ! {self(), Question},
    receive {Population, Answer} -> Answer after 30000 -> exit(no_answer) end.

%%% Samples of processes --------------------------------------------------------------------------------------

new_processes(#target{release = Release} = Target) ->
    Population = call(Target, population, [100]),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, spawns]),
    {50, 0} = ask(Population, {turnover, 0, 50}),
    agent_client:sample(Agent, 2, [procs]),
    #{new := 50, sampled := 20, calls := Calls} = value(spawns, agent_client:sample(Agent, 3, [procs, spawns])),
    Worker = {<<"agent_target">>, <<"worker">>, 0},
    Parent = case Release >= 25 of true -> {<<"agent_target">>, <<"population_loop">>, 1}; false -> undefined end,
    check("calls and parents", [{Worker, <<>>, Parent, 20}], Calls),
    agent_client:leave(Agent),
    call(Target, stop, [Population]).

%% 20 of 50 processes are sampled: at first, all of these wait; later, they have ended.
sampled_again(Target) ->
    Population = call(Target, population, [10]),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, spawns]),
    {50, 0} = ask(Population, {turnover, 0, 50}),
    agent_client:sample(Agent, 2, [procs]),
    #{again := Waiting} = value(spawns, agent_client:sample(Agent, 3, [procs, spawns])),
    Worker = {<<"agent_target">>, <<"worker">>, 0},
    check("waiting", Waiting, fun([{Of, 20, waiting, [At | _], 20, 0, []}]) -> Of =:= Worker andalso At =:= Worker; (_) -> false end),
    {0, 60} = ask(Population, {turnover, 60, 0}),
    #{again := Ended} = value(spawns, agent_client:sample(Agent, 4, [procs, spawns])),
    check("ended", [{Worker, 20, ended, [], 20, 0, []}], Ended),
    #{again := Later} = value(spawns, agent_client:sample(Agent, 5, [procs, spawns])),
    check("not sampled any more", [], Later),
    agent_client:leave(Agent),
    call(Target, stop, [Population]).

large_arguments(Target) ->
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, spawns]),
    [Large, Small] = [call(Target, spawn_with_list, [5, Elements]) || Elements <- [20000, 100]],
    agent_client:sample(Agent, 2, [procs]),
    #{given := Given} = value(spawns, agent_client:sample(Agent, 3, [procs, spawns])),
    Call = {<<"agent_target">>, <<"wait_with_list">>, 1},
    IsRight = fun([{Of, _, 5, Bytes}]) -> Of =:= Call andalso abs(Bytes - 5 * 20000 * 2 * 8) < 100000; (_) -> false end,
    check("arguments", Given, IsRight),
    #{given := Later} = value(spawns, agent_client:sample(Agent, 4, [procs, spawns])),
    check("new processes only", Later, []),
    agent_client:leave(Agent),
    [call(Target, stop, [Pid]) || Pid <- [Large, Small]].

new_atoms(Target) ->
    Agent = join(Target),
    Make = fun(Parts) -> call(Target, erlang, list_to_atom, [lists:concat(Parts)]) end,
    %% The names are unique, so that the atoms do not exist yet.
    Made = erlang:unique_integer([positive]) + erlang:system_time(),
    agent_client:sample(Agent, 1, [atoms]),
    [Make(["größe-", Made, "-", N]) || N <- lists:seq(1, 30)],
    [Make(["topic", Made, "/", Kind, N]) || N <- lists:seq(1, 4), Kind <- [a, b]],
    [Make([N, "alone", Made]) || N <- lists:seq(1, 2)],
    #{new := New, sampled := Sampled, beginnings := Beginnings} = value(atoms, agent_client:sample(Agent, 2, [atoms])),
    check("new", New, fun(N) -> N >= 40 end),
    check("sampled", 40 =< Sampled andalso Sampled =< 50, true),
    Number = integer_to_binary(Made),
    check("common prefixes", [{<<"größe-"/utf8, Number/binary, "-">>, 30}, {<<"topic", Number/binary, "/">>, 8}],
          lists:sublist(Beginnings, 2)),
    check("without a common prefix", [], [B || {B, _} <- Beginnings, binary:match(B, <<"alone">>) =/= nomatch]),
    check("reported once", #{beginnings => []}, maps:with([beginnings], value(atoms, agent_client:sample(Agent, 3, [atoms])))),
    agent_client:leave(Agent).

waiting_for(Target) -> waiting_for(Target, fun(Keeper) -> call(Target, service_addresses, [Keeper]) end).

waiting_for(Target, ExpectedPeers) ->
    Keeper = call(Target, unresponsive_server, [40]),
    Server = list_to_binary(call(Target, erlang, pid_to_list, [call(Target, kept_server, [Keeper])])),
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [procs, {stands, #{sample => 1000}}, processes]),
    #{total := Total, sampled := Sampled, waiting := Waiting, rows := Rows, waited_for := For} = value(stands, Sample),
    %% With so few processes, all are sampled except for the agent's own.
    check("sampled", Sampled, fun(N) -> N > 80 andalso N < Total end),
    check("waiting", Waiting, fun(N) -> N > 40 andalso N =< Sampled end),
    [{Stack, 40, 0, On}] = [Row || {_, 40, _, _} = Row <- Rows],
    check("call stack of the waiters", [{<<"gen">>, <<"do_call">>, 4}, {<<"gen_server">>, <<"call">>, 3}], lists:sublist(Stack, 2)),
    check("blocking process", [{Server, 40}], On),
    [{_, Status, 0, [Top | _], Peers}] = [W || {Pid, _, _, _, _} = W <- For, Pid =:= Server],
    check("peers of its connections", ExpectedPeers(Keeper), Peers),
    check("its status and function", {waiting, <<"agent_target">>}, {Status, element(1, Top)}),
    [#{by := By}] = [Row || #{pid := Pid} = Row <- maps:get(rows, value(processes, Sample)), Pid =:= Server],
    check("its row", true, lists:member(waited_for, By)),
    agent_client:leave(Agent),
    call(Target, stop, [Keeper]).

waiting_behind_another(Target) ->
    Keeper = call(Target, server_that_calls, [40]),
    [Server, Callee] = [list_to_binary(call(Target, erlang, pid_to_list, [call(Target, Which, [Keeper])])) || Which <- [kept_server, kept_callee]],
    wait(fun() -> {message_queue_len, 1040} =:= call(Target, erlang, process_info, [call(Target, kept_server, [Keeper]), message_queue_len]) end, 5000),
    Agent = join(Target),
    #{waited_for := For} = value(stands, agent_client:sample(Agent, 1, [procs, {stands, #{sample => 1000}}])),
    [On] = [On || {Pid, waiting, 1040, _, On} <- For, Pid =:= Server],
    check("the one with a message", [Callee], On),
    check("that one is sampled, too", true, lists:keymember(Callee, 1, For)),
    agent_client:leave(Agent),
    call(Target, stop, [Keeper]).

%% A process that works, but waits for others most of the time. Stacks of servers in their main loop are not reported.
waiting_while_working(Target) ->
    Keeper = call(Target, garbage_collector, [300]),
    Collector = list_to_binary(call(Target, erlang, pid_to_list, [call(Target, kept_server, [Keeper])])),
    Agent = join(Target),
    wait(fun() ->
             Samples = [agent_client:sample(Agent, N, [procs, ran]) || N <- lists:seq(1, 20)],
             check("running", [N || S <- Samples, #{sampled := N} <- [value(ran, S)], N < 0 orelse N > 6], []),
             Rows = maps:get(rows, value(processes, agent_client:sample(Agent, 21, [processes]))),
             [{Ran, Stood}] = [{R, S} || #{pid := Pid, ran := R, stood := S} <- Rows, Pid =:= Collector],
             check("at most once per sample", lists:sum([Count || {_, Count} <- Ran ++ Stood]), fun(Sum) -> Sum =< 20 end),
             Loops = [Stack || #{stood := S} <- Rows, {Stack, _} <- S, {<<"gen_server">>, <<"loop">>, 7} =:= hd(Stack)],
             check("main loops", [], Loops),
             lists:any(fun({Stack, _}) -> [M || {<<"erlang">>, <<"garbage_collect">>, _} = M <- lists:sublist(Stack, 2)] =/= [] end, Stood)
         end, 30000),
    agent_client:leave(Agent),
    call(Target, stop, [Keeper]).

%% The process is idle, and others are busy.
waiting_with_messages(Target) ->
    Busy = call(Target, busy, [6]),
    Full = call(Target, flood, [20]),
    Agent = join(Target),
    wait(fun() ->
             [agent_client:sample(Agent, N, [procs, ran]) || N <- lists:seq(1, 4)],
             Rows = maps:get(rows, value(processes, agent_client:sample(Agent, 5, [processes]))),
             Id = list_to_binary(call(Target, erlang, pid_to_list, [Full])),
             Stacks = [Stack || #{pid := Pid, stood := Stood} <- Rows, Pid =:= Id, {Stack, _} <- Stood],
             lists:any(fun(Stack) -> lists:member({<<"agent_target">>, <<"forever">>, 0}, Stack) end, Stacks)
         end, 30000),
    agent_client:leave(Agent),
    call(Target, stop, [Busy]),
    call(Target, erlang, exit, [Full, kill]).

%% With +MFe false, the number of links and monitors is unknown.
waiting_for_a_hub(Target) -> waiting_for(Target, fun(_) -> [] end).

%% None of these processes lives until the next sample. So processes are also chosen for sampling between samples.
random_samples(Target) ->
    Jobs = call(Target, short_jobs, []),
    Agent = join(Target),
    wait(fun() ->
             [agent_client:sample(Agent, N, [procs, ran]) || N <- [1, 2]],
             receive after 1000 -> ok end,
             Rows = maps:get(at_work, value(processes, agent_client:sample(Agent, 3, [procs, ran, processes]))),
             check("rows", Rows, fun(List) -> length(List) =< 40 end),
             check("states", [How || {_, _, How, _, _} <- Rows, not lists:member(How, [ran, ready, collects])], []),
             lists:sum([Count || {_, _, _, Stack, Count} <- Rows, {_, <<"short_job">>, 2} <- Stack]) >= 2
         end, 30000),
    agent_client:leave(Agent),
    call(Target, stop, [Jobs]).

%% Half of the receivers get small messages, the others messages of 80 kB.
weighed_messages(Target) ->
    Receivers = call(Target, suspended_receivers, [20, 5000]),
    Agent = join(Target),
    check("no active processes known yet", 0, maps:get(sampled, value(weigh, agent_client:sample(Agent, 1, [procs, weigh])))),
    wait(fun() ->
             Sample = agent_client:sample(Agent, 2, [procs, weigh, messages, processes]),
             #{active := Active, sampled := Sampled, us := Us, sizes := Sizes, rows := Rows} = value(messages, Sample),
             Sampled > 0 andalso
                 begin
                     check("sampled", {Active, Sampled}, fun({A, S}) -> A >= S andalso S =< 60 end),
                     check("microseconds", Us, fun(_) -> Us >= 4000 andalso Us < 1000000 end)
                 end,
             %% A message that arrives between the readings of queue and heap doubles the apparent size of another message.
             [] =:= [0, 80000] -- [Bytes div Count || {Count, Bytes} <- Sizes] andalso
                 begin
                     [{Receiver, _, Heaviest} | Others] = Rows,
                     check("largest first", Others, fun(_) -> lists:all(fun({_, _, Bytes}) -> Bytes =< Heaviest end, Others) end),
                     [#{by := By, initial_call := Call}] = [Row || #{pid := Pid} = Row <- maps:get(rows, value(processes, Sample)), Pid =:= Receiver],
                     check("row of the receiver", true, lists:member(message, By)),
                     check("its initial call", {<<"agent_target">>, <<"take_all">>, 0}, Call),
                     true
                 end
         end, 30000),
    agent_client:leave(Agent),
    call(Target, stop, [Receivers]).

%%% Exits -----------------------------------------------------------------------------------------------------

crashes(Target) ->
    [#{parent := Parent} = Row | _] = Rows = exits(error, Target),
    check("the supervisor", {<<"its_supervisor">>, {<<"supervisor">>, <<"agent_target">>, 1}},
          {maps:get(parent_name, Row), maps:get(parent_call, Row)}),
    check("its pid", Parent, fun(P) -> binary:first(P) =:= $< end),
    check("the child", {<<"its_child">>, {<<"agent_target">>, <<"child">>, 1}}, {maps:get(name, Row), maps:get(call, Row)}),
    check("the reason", <<"badmatch">>, maps:get(reason, Row)),
    [{Function, Line} | _] = maps:get(stack, Row),
    check("the function", {<<"agent_target">>, <<"fails">>, 1}, Function),
    check("the line", Line, fun(L) -> L > 0 end),
    check("no data", nomatch, binary:match(term_to_binary(Rows), <<"4111">>)).

call_timeout(Target) ->
    [Call | _] = exits(call, Target),
    check("a call", {<<"timeout">>, <<"its_callee">>, [{{<<"gen_server">>, <<"call">>, 3}, 0}]},
          {maps:get(reason, Call), maps:get(to, Call), maps:get(stack, Call)}).

killed(Target) ->
    [Row | _] = exits(heap, Target),
    check("killed", {<<"killed">>, 100000}, {maps:get(reason, Row), maps:get(heap_limit_words, Row)}).

normal_exits(Target) ->
    Rows = exits(shutdown, Target),
    check("only numbers", [], [Row || Row <- Rows, is_map_key(reason, Row) orelse is_map_key(name, Row)]),
    check("no data", nomatch, binary:match(term_to_binary(Rows), <<"4111">>)).

siblings(Target) ->
    Supervised = call(Target, supervised, [siblings]),
    Agent = join(Target),
    Rows = wait_for_exits(Agent, [], 6, 50),
    agent_client:leave(Agent),
    call(Target, stop, [Supervised]),
    check("the failed child", [<<"its_child">>], lists:usort([Name || #{name := Name, reason := _} <- Rows])),
    Siblings = [Row || #{name := _} = Row <- Rows, not is_map_key(reason, Row)],
    check("the sibling", [<<"its_sibling">>], lists:usort([Name || #{name := Name} <- Siblings])),
    check("only its name", [], [Row || Row <- Siblings, is_map_key(call, Row) orelse is_map_key(stack, Row)]).

%% Returns the rows of a child that exits in this way, from samples until it has exited three times.
exits(How, Target) ->
    Supervised = call(Target, supervised, [How]),
    Agent = join(Target),
    Rows = wait_for_exits(Agent, [], 3, 50),
    agent_client:leave(Agent),
    call(Target, stop, [Supervised]),
    Rows.

wait_for_exits(Agent, Rows, Min, Tries) ->
    timer:sleep(200),
    #{rows := New} = value(crashes, agent_client:sample(Agent, 1, [procs, crashes])),
    All = [Row || #{parent_name := <<"its_supervisor">>} = Row <- New] ++ Rows,
    case lists:sum([N || #{count := N} <- All]) of
        Count when Count >= Min -> lists:reverse(All);
        _ when Tries > 0 -> wait_for_exits(Agent, All, Min, Tries - 1)
    end.

huge_reason(Target) ->
    Child = call(Target, crash_loop, [lists:seq(1, 1000000)]),
    Agent = join(Target),
    Statuses = [begin
                    timer:sleep(200),
                    Sample = agent_client:sample(Agent, N, [counts, procs, crashes]),
                    [Status || {_, Status, _, _, _} <- items(Sample)]
                end || N <- lists:seq(1, 20)],
    check("other items are not affected", [], [S || [Counts, Procs, _] = S <- Statuses, Counts =/= ok orelse Procs =/= ok]),
    check("the exit monitor restarts", Statuses, fun(All) -> lists:member(ok, [Last || [_, _, Last] <- All]) end),
    agent_client:leave(Agent),
    call(Target, stop, [Child]).

sample_of_many(Target) ->
    Idle = call(Target, idle, [40000]),
    Agent = join(Target),
    check("no list yet", 0, maps:get(sampled, value(stands, agent_client:sample(Agent, 1, [procs, stands])))),
    wait(fun() ->
             [{stands, ok, _, Us, #{total := Total, sampled := Sampled, rows := Rows}}] =
                 [Item || {stands, _, _, _, _} = Item <- items(agent_client:sample(Agent, 2, [procs, {stands, #{sample => 100}}]))],
             Sampled > 0 andalso
                 begin
                     check("numbers", {Total, Sampled}, fun({T, S}) -> T > 40000 andalso S > 20 andalso S =< 100 end),
                     check("call stack", [N || {[{<<"agent_target">>, <<"forever">>, 0} | _], N, 0, []} <- Rows],
                           fun([N]) -> N > Sampled div 2 end),
                     check("microseconds", Us, fun(_) -> Us < 250000 end),
                     true
                 end
         end, 60000),
    call(Target, stop, [Idle]),
    agent_client:leave(Agent).

top_processes(#target{release = Release} = Target) ->
    Large = call(Target, large, [1000000]),
    {Maker, Child} = call(Target, large_child, [900000]),
    Binary = call(Target, binaries, [50000000]),
    Busy = call(Target, busy, [1]),
    Idle = call(Target, idle, [3000]),
    %% The process takes no messages; each message has 16 bytes per list element.
    Waiting = spawn(node_of(Target), timer, sleep, [infinity]),
    [call(Target, erlang, send, [Waiting, lists:seq(1, 20000)]) || _ <- [1, 2]],
    Agent = join(Target),
    %% A process with a small heap is read in every fourth round.
    Rows = sample_rounds(Agent, 6),
    Row = fun(Pid) ->
              Bin = list_to_binary(call(Target, erlang, pid_to_list, [Pid])),
              case [R || #{pid := P} = R <- Rows, P =:= Bin] of [R] -> R; [] -> exit({not_listed, Bin}) end
          end,
    #{by := By, heap_bytes := Bytes, initial_call := {<<"agent_target">>, _, _}} = Row(Large),
    check("memory", lists:member(memory, By) andalso Bytes > 16000000),
    check("initial call of a proc_lib process", maps:get(initial_call, Row(Child)),
          fun({<<"agent_target">>, _, _}) -> Release >= 27;
             ({child_of, <<"agent_target:", _/binary>>}) -> Release =:= 25;
             ({<<"proc_lib">>, <<"init_p">>, _}) -> Release =:= 23
          end),
    #{by := By3, message_queue_len := 2, fragment_bytes := Loose, heap_bytes := Heap, memory_bytes := Memory} = Row(Waiting),
    %% A garbage collection may have moved the messages to the heap. Message and process structures are outside of it.
    check("messages in the queue", lists:member(queue, By3) andalso Loose < Heap andalso Heap >= 640000),
    check("memory outside of the heap", Memory - Heap > 2 * 88 andalso Memory - Heap < 4000),
    #{by := By2, binary_vheap_bytes := Vheap} = Row(Binary),
    check("binary", {lists:member(binary, By2), Vheap div 1000000}, {true, 50}),
    %% This must be the status as seen from outside. While the process answers, its status is `running'.
    check("status", [waiting, waiting], [maps:get(status, Row(P)) || P <- [Large, Binary]]),
    #{delta_reductions := Delta} = Busiest = busiest(Agent, 100),
    check("reductions", Delta > 1000),
    Release < 25 orelse check("parent", list_to_binary(call(Target, erlang, pid_to_list, [Busy])), maps:get(parent, Busiest)),
    agent_client:leave(Agent),
    exit(Waiting, kill),
    exit(Maker, kill),
    [call(Target, stop, [P]) || P <- [Large, Binary, Busy, Idle]].

%% Returns the row of the process in a busy loop. Its reductions are counted when it is scheduled out.
busiest(Agent, Tries) ->
    Rows = sample_rounds(Agent, 1),
    case [R || #{by := By, current_function := {<<"agent_target">>, <<"spin">>, 0}} = R <- Rows, lists:member(reductions, By)] of
        [Row] -> Row;
        [] when Tries > 0 -> busiest(Agent, Tries - 1)
    end.

sample_rounds(Agent, Rounds) ->
    case value(processes, agent_client:sample(Agent, 1, [procs, processes])) of
        #{round := Round, rows := Rows} when Round >= Rounds -> Rows;
        _ -> sample_rounds(Agent, Rounds)
    end.

%%% Counts ----------------------------------------------------------------------------------------------------

%% Spawns enough processes that the number of a pid overflows into its second part.
short_lived(Target) ->
    Agent = join(Target),
    [check_spawned(Agent, Target, Seq, Count) || {Seq, Count} <- [{1, 100}, {3, 40000}]],
    {beamtune, left} = agent_client:leave(Agent).

%% Half of the slots are always occupied.
small_table(Target) ->
    call(Target, agent_target, idle, [500]),
    Agent = join(Target),
    [check_spawned(Agent, Target, Seq, 20000) || Seq <- [1, 3]],
    %% If hardly any slot is free, the agent does not occupy one to count spawned processes. The other counts are complete.
    call(Target, agent_target, idle, [400]),
    Counts = value(counts, agent_client:sample(Agent, 5, [counts])),
    check("nearly full", {maps:is_key(spawned, Counts), maps:get(processes, Counts)}, fun({HasSpawned, N}) -> not HasSpawned andalso N > 924 end),
    {beamtune, left} = agent_client:leave(Agent).

check_spawned(Agent, Target, Seq, Count) ->
    Spawned = fun(At) -> maps:get(spawned, value(counts, agent_client:sample(Agent, At, [counts]))) end,
    Before = Spawned(Seq),
    call(Target, agent_target, short_lived, [Count]),
    check({"spawned", Count}, Spawned(Seq + 1) - Before, fun(Counted) -> Counted >= Count andalso Counted < 3 * Count + 200 end).
