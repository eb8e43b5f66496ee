%% @doc Tests of what is told of processes: that rounds and counts are exact, which processes are found, and what they do, weigh
%% and wait for. Part of agent_test, which runs them.
-module(agent_processes_test).
-export([tests/0]).

-include("agent_test.hrl").

-import(agent_nodes, [call/3, call/4, check/2, check/3, items/1, join/1, join/2, node_of/1, start/4, stop/1, value/2, wait/2]).

%% Name, what to do, the node's flags.
tests() ->
    [{"deltas_new_and_gone_are_exact", fun exact/1},
     {"a_small_budget_cuts_rounds_into_parts_that_are_exact_too", fun exact_in_parts/1},
     {"a_hot_process_among_many_is_found_when_all_were_read_once", fun hot_among_many/1},
     {"new_processes_are_told_with_who_made_them", fun new_processes/1},
     {"new_processes_are_looked_at_again", fun looked_at_again/1},
     {"new_processes_with_large_arguments_are_reported", fun large_arguments/1},
     {"of_new_atoms_it_is_told_how_they_begin", fun new_atoms/1},
     {"those_that_wait_are_told_with_whom_they_wait_for", fun waiting_for/1},
     {"one_that_has_many_monitors_waits_for_who_is_behind", fun waiting_for_one_behind/1},
     {"who_others_wait_for_is_not_asked_for_what_may_be_very_many", fun waiting_for_a_hub/1, ["+MFe", "false"]},
     {"where_the_busiest_wait_in_the_midst_of_something_is_told", fun waiting_amidst/1},
     {"where_the_one_with_the_longest_queue_waits_is_told", fun waiting_with_messages/1},
     {"of_a_great_many_processes_some_are_looked_at", fun some_of_many/1},
     {"binaries_of_tables_are_measured_where_there_are_many", fun kept_binaries/1},
     {"receive_buffers_are_measured_where_there_are_many_binaries", fun receive_buffers/1},
     {"tables_that_grow_are_followed_and_rows_of_processes_that_have_ended_are_told", fun growing_tables/1},
     {"ports_of_programs_are_counted", fun ports_of_programs/1},
     {"sockets_that_outlive_their_process_are_told", fun disowned_sockets/1},
     {"who_is_sent_traces_is_told", fun traces/1},
     {"attempts_to_connect_to_a_node_that_is_gone_are_counted", fun attempts_to_connect/1},
     {"connections_to_nodes_that_were_connected_before_are_counted", fun connected_again/1},
     {"what_mnesia_says_of_its_log_and_nodes_is_told", fun mnesia/1},
     {"what_rabbitmq_counts_is_told_of_its_queues_and_clients", fun broker/1},
     {"messages_are_weighed_when_they_come", fun weighed_messages/1},
     {"short_lived_work_is_seen_by_chance", fun seen_by_chance/1},
     {"a_child_that_ends_with_errors_is_told_with_its_supervisor_and_the_reason", fun crashes/1, [], prints},
     {"a_child_that_ends_because_a_call_is_not_answered_is_told_with_whom_it_called", fun unanswered/1, [], prints},
     {"a_child_that_the_vm_kills_is_told_with_its_heap_limit", fun killed/1, [], prints},
     {"of_ends_in_order_only_the_number_is_told", fun in_order/1, [], prints},
     {"siblings_that_are_ended_with_one_that_fails_are_named", fun line/1, [], prints},
     {"a_reason_that_is_huge_ends_nobody_but_who_monitors", fun huge_reason/1},
     {"processes_that_end_at_once_are_counted", fun short_lived/1},
     {"a_table_that_is_passed_through_many_times_counts_on", fun small_table/1, ["+P", "1024"]},
     {"the_largest_and_busiest_processes_are_named", fun top_processes/1}].

%%% Rounds ----------------------------------------------------------------------------------------------------

%% While nothing runs, every number can be compared with the truth. Two rounds follow each change, because a round that
%% finds as many processes as before uses its old list.
exact(Target) -> exact(Target, 1000000, 1000).

exact(Target, Budget, Count) ->
    Population = call(Target, population, [Count]),
    Agent = join(Target, #{budget_ppm => Budget}),
    Before = maps:from_list(ask(Population, work)),
    _ = whole_rounds(Agent, 2),
    lists:foldl(fun({End, Start}, Known) ->
                    {Started, Ended} = ask(Population, {turnover, End, Start}),
                    Truth = maps:from_list(ask(Population, work)),
                    Values = whole_rounds(Agent, 2),
                    Sum = fun(Key) -> lists:sum([maps:get(Key, V) || V <- Values]) end,
                    check({new, End, Start}, Started, Sum(new)),
                    check({gone, End, Start}, Ended, Sum(gone)),
                    Deltas = lists:foldl(fun({Pid, D, _, _}, Map) -> maps:update_with(Pid, fun(B) -> B + D end, D, Map) end,
                                         #{}, lists:append([maps:get(top_reductions, V) || V <- Values])),
                    Worked = maps:filter(fun(_, D) -> D > 1500 end,
                                         maps:map(fun(Pid, R) -> R - maps:get(Pid, Known, 0) end, Truth)),
                    check("enough have worked", map_size(Worked), fun(N) -> N > 30 end),
                    %% Being asked may cost a process a reduction or two.
                    Wrong = [{Pid, D, maps:get(Pid, Deltas, none)}
                             || {Pid, D} <- maps:to_list(Worked), abs(D - maps:get(Pid, Deltas, 0)) > 5],
                    check({"deltas", End, Start}, [], Wrong),
                    Truth
                end, Before, [{0, 0}, {10, 0}, {0, 10}, {10, 10}, {300, 300}, {200, 0}, {0, 400}, {1, 1}, {500, 100}, {0, 0}]),
    agent_client:leave(Agent),
    call(Target, stop, [Population]).

exact_in_parts(Target) -> exact(Target, 100, 3000).

%% The parts of so many rounds.
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
    check("dead letters, without what is dropped", [20, 1000, 33, 44, 5, none],
          [maps:get(K, Clients, none) || K <- [published, delivered, dead_lettered_expired, dead_lettered_rejected, dead_lettered_maxlen,
                                               dead_lettered_delivery_limit]]),
    Name = <<"10.0.0.7:41000 -> 10.0.0.1:5672 - worker">>,
    [Orders, Mail] = lists:reverse(lists:sort(fun(A, B) -> maps:get(ready, A) =< maps:get(ready, B) end, maps:get(queue_rows, Clients))),
    check("a queue", #{name => <<"orders">>, ready => 7, unacked => 30, consumers => 1, prefetch => 30, unlimited => 0, delivered => 1000,
                       redelivered => 900, acknowledged => 50, clients => [{Name, <<"app">>, 1000, 900, 50, 30}]}, Orders),
    check("one of another virtual host", {<<"mail in vhost v">>, 30000000000, 1000}, {maps:get(name, Mail), maps:get(ttl_ns, Mail), maps:get(max_length, Mail)}),
    check("connections", [{Name, <<"app">>, 2, true}], maps:get(connection_rows, Clients)),
    Labels = [maps:get(label, Row, none) || Row <- maps:get(rows, value(processes, agent_client:sample(Agent, 3, [procs, {processes, #{top => 50}}])))],
    check("labels by the dictionary and by the table of queues", [true, true],
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
    Look = fun() -> maps:get(ended, value(ports, agent_client:sample(Agent, 1, [ports]))) end,
    #{sampled := Before, ended := 0, queue_bytes := 0} = Look(),
    Peers = call(Target, unsent, [3]),
    #{sockets := Sockets, sampled := Sampled, ended := 3, queue_bytes := Bytes} = Look(),
    check("all sockets are asked", {Sampled, Before + 7}, {Sockets, Sampled}),
    check("what waits", Bytes, fun(B) -> B > 3 * 1000000 end),
    call(Target, stop, [Peers]),
    wait(fun() -> maps:get(ended, Look()) =:= 0 end, 5000),
    %% Of many, 100 chosen by chance.
    Many = call(Target, unsent, [60]),
    #{sampled := 100, ended := Ended} = Look(),
    check("of a sample", Ended, fun(E) -> E > 25 andalso E < 60 end),
    call(Target, stop, [Many]),
    agent_client:leave(Agent).

%% In the only session that there was before 27, and in others.
traces(#target{release = Release} = Target) ->
    Busy = call(Target, busy, [2]),
    Agent = join(Target),
    Look = fun(N) -> value(traces, lists:last([agent_client:sample(Agent, N, [procs, ran, traces]) || _ <- [1, 2]])) end,
    #{rows := []} = Look(1),
    Tracers = call(Target, traces, [Busy]),
    Told = [list_to_binary(call(Target, erlang, pid_to_list, [T])) || T <- call(Target, tracers, [Tracers])],
    Names = case Release >= 27 of true -> [<<>>, <<"agent_test">>]; false -> [<<>>] end,
    wait(fun() ->
             #{rows := Rows, sampled := Sampled} = Look(2),
             check("bounded", Sampled, fun(S) -> S =< 25 end),
             lists:sort([{S, T, New, Flags} || #{session := S, tracer := T, new := New, flags := Flags, traced := N} <- Rows, N > 0 orelse New])
                 =:= lists:sort([{S, T, S =:= <<>>, [garbage_collection]} || {S, T} <- lists:zip(Names, Told)])
         end, 10000),
    Rows = maps:get(rows, value(processes, agent_client:sample(Agent, 3, [processes]))),
    check("their rows", [], Told -- [P || #{pid := P, by := By} <- Rows, lists:member(tracer, By)]),
    call(Target, stop, [Tracers]),
    wait(fun() -> maps:get(rows, Look(4)) =:= [] end, 5000),
    call(Target, stop, [Busy]),
    agent_client:leave(Agent).

%% Nothing is told before a table has grown, and of a row only the pid in it. What may not be read, or not fairly, is told by its size alone.
growing_tables(Target) ->
    Agent = join(Target),
    Look = fun() -> value(table_growth, agent_client:sample(Agent, 1, [table_growth])) end,
    check("before `ets'", #{followed => 0, rows => [], ended => []}, Look()),
    Tables = call(Target, sessions, []),
    %% Few are among the largest: the others are found by their growth.
    agent_client:sample(Agent, 2, [{ets, #{top => 1}}]),
    Add = fun(From) -> call(Target, add_sessions, [Tables, From, 60, 140]) end,
    Add(1),
    check("followed, and none has grown since", maps:get(rows, Look()), fun(Rows) -> [N || {N, _, _} <- Rows, N =/= <<"shut">>] =:= [] end),
    Add(201),
    #{rows := Rows} = Look(),
    Names = [<<"by_key">>, <<"by_part">>, <<"by_pid">>, <<"by_time">>, <<"by_value">>, <<"of_none">>, <<"packed">>],
    check("rows", [{N, 400} || N <- Names], lists:sort([{N, Size} || {N, Size, _} <- Rows, lists:member(N, Names)])),
    [check({"bytes", N}, 400 * 100, fun(Least) -> Bytes > Least end) || {N, _, Bytes} <- Rows, lists:member(N, Names)],
    Ended = looks(Look, fun(Seen) -> length(lists:usort([element(1, E) || E <- Seen])) >= 4 end, Add, 401, []),
    Where = #{<<"by_pid">> => key, <<"by_part">> => in_key, <<"by_value">> => element},
    [check({"sampled", Name}, {100, Place}, fun({All, P}) -> All =:= Sampled andalso P =:= Place
                                                     andalso (Pids =:= 100 andalso Gone >= 45 andalso Gone =< 95) end)
     || {Name, Sampled, Place, Pids, Gone} <- Ended, maps:is_key(Name, Where), Place =:= maps:get(Name, Where)],
    check("each in its place", [], maps:to_list(Where) -- [{N, P} || {N, _, P, _, _} <- Ended]),
    check("without pids", [{none, 0, 0}], lists:usort([{P, Pids, Gone} || {<<"of_none">>, _, P, Pids, Gone} <- Ended])),
    check("no others", [], [N || {N, _, _, _, _} <- Ended, lists:member(N, [<<"by_time">>, <<"by_key">>, <<"shut">>, <<"packed">>])]),
    %% Once it is among the largest ones.
    #{rows := Known} = value(ets, agent_client:sample(Agent, 3, [{ets, #{top => 50}}])),
    check("its rows", [], Names -- [N || #{name := N} <- Known]),
    check("whose they are", [{<<"agent_target">>, <<>>}],
          lists:usort([{Module, maps:get(application, Row, <<>>)} || #{module := Module, name := N} = Row <- Known, lists:member(N, Names)])),
    Look(),
    Size = call(Target, ets, info, [spread, size]),
    Add(Size + 1),
    check("decentralized counters", {value, {<<"spread">>, Size + 200}},
          case lists:keyfind(<<"spread">>, 1, maps:get(rows, Look())) of {N, S, _} -> {value, {N, S}}; false -> none end),
    call(Target, stop, [Tables]),
    check("gone", maps:get(rows, Look()), fun(Left) -> [N || {N, _, _} <- Left, lists:member(N, Names)] =:= [] end),
    agent_client:leave(Agent).

%% Until enough was seen; no more than three tables are sampled in ten seconds.
looks(_, _, _, From, _) when From > 20000 -> exit(too_long);
looks(Look, IsEnough, Add, From, Seen) ->
    Add(From),
    #{ended := Ended} = Look(),
    check("one at a time", length(Ended), fun(N) -> N =< 1 end),
    case IsEnough(Ended ++ Seen) of
        true -> Ended ++ Seen;
        false -> receive after 300 -> looks(Look, IsEnough, Add, From + 200, Ended ++ Seen) end
    end.

%% By the number of the connection: at most as many as there were, and who asked for them.
attempts_to_connect(Target) ->
    Gone = 'gone@127.0.0.1',
    Agent = join(Target),
    Read = fun(N) ->
               receive after 20 -> ok end,
               value(dist, agent_client:sample(Agent, N, [counts, memory, statistics, run_queues, dist]))
           end,
    #{connecting := #{samples := 1, rows := []}, unconnected := #{nodes := None}} = Read(1),
    check("not known yet", false, lists:member(atom_to_binary(Gone, utf8), None)),
    Connector = call(Target, connecting, [its_connector, Gone]),
    Rows = [Row || N <- lists:seq(2, 60), #{connecting := #{rows := Told}} <- [Read(N)], #{attempts := Count} = Row <- Told, Count > 0],
    #{unconnected := #{total := Total, nodes := Known}} = Read(61),
    check("known, not connected", Total >= 1 andalso lists:member(atom_to_binary(Gone, utf8), Known)),
    Sum = fun(Key) -> lists:sum([maps:get(Key, Row) || Row <- Rows]) end,
    check("only this node", [atom_to_binary(Gone, utf8)], lists:usort([maps:get(node, Row) || Row <- Rows])),
    check("its own attempts", {true, 0}, {Sum(out) > 1, Sum(in)}),
    check("more than were seen", Sum(attempts) > Sum(out)),
    check("in samples", Sum(samples) =< 59),
    check("not connected", [false], lists:usort([maps:get(connected, Row) || Row <- Rows])),
    check("who asks", [<<"its_connector">>], lists:usort([Title || #{askers := Askers} <- Rows, {Title, _} <- Askers])),
    check("how far they are", [], lists:usort([Step || #{steps := Steps} <- Rows, {Step, _} <- Steps]) -- [connect, epmd, resolve]),
    call(Target, stop, [Connector]),
    agent_client:leave(Agent).

connected_again(#target{release = Release, root = Root, beams = Beams} = Target) ->
    #target{node = Node} = Other = start(integer_to_list(Release), Root, Beams, []),
    Connect = fun() -> wait(fun() -> true =:= call(Target, net_kernel, connect_node, [Node]) end, 5000) end,
    Connect(),
    Agent = join(Target),
    Read = fun(N) -> maps:get(connecting, value(dist, agent_client:sample(Agent, N, [counts, dist]))) end,
    check("those that stay", [#{again => [], again_samples => 0}], lists:usort([maps:with([again, again_samples], Read(N)) || N <- [1, 2, 3]])),
    Again = fun(N) ->
                call(Target, erlang, disconnect_node, [Node]),
                wait(fun() -> not lists:member(Node, call(Target, erlang, nodes, [])) end, 5000),
                agent_client:sample(Agent, N, [counts]),
                Connect(),
                agent_client:sample(Agent, N + 1, [counts])
            end,
    [Again(N) || N <- [4, 6, 8]],
    #{again := Told, again_samples := Samples} = Read(10),
    check("each time", {[{atom_to_binary(Node, utf8), 3}], 3}, {Told, Samples}),
    agent_client:leave(Agent),
    stop(Other).

%% By table: how many rows there are, were looked at and have other terms; how many binaries were found, their bytes, those of what they are
%% parts of, and what the rows keep for themselves.
kept_binaries(Target) ->
    Agent = join(Target),
    Look = fun(N) -> value(table_growth, agent_client:sample(Agent, N, [memory, table_growth])) end,
    agent_client:sample(Agent, 1, [{ets, #{top => 1}}]),
    check("where there are few", false, maps:is_key(binaries, Look(1))),
    Tables = call(Target, keeping, []),
    agent_client:sample(Agent, 2, [{ets, #{top => 1}}]),
    Looks = [Look(3) || _ <- lists:seq(1, 15)],
    check("few at a time", true, lists:all(fun(#{binaries := B}) -> length(B) =< 3 end, Looks)),
    All = lists:append([B || #{binaries := B} <- Looks]),
    check("each once", length(All), fun(N) -> N =:= length(lists:usort([element(1, B) || B <- All])) end),
    Of = fun(Table) -> case lists:keyfind(Table, 1, All) of false -> exit({not_measured, Table}); Found -> tl(tuple_to_list(Found)) end end,
    check("whole ones", [200, 100, 0, 100, 20000000, 20000000, 20000000], Of(<<"of_whole">>)),
    check("parts", [300, 100, 0, 100, 10000, 1000000, 1000000], Of(<<"of_parts">>)),
    check("parts of one", Of(<<"of_shared">>),
          fun([1000, 100, 0, 100, 10000, 100000000, Held]) -> Held * 10 > 500000 andalso Held * 10 < 1500000 end),
    check("within a tuple", [100, 100, 0, 100, 500000, 500000, 500000], Of(<<"of_nested">>)),
    check("not seen", [[100, 30, 30, 0, 0, 0, 0]], lists:usort([Of(Table) || Table <- [<<"of_maps">>, <<"of_lists">>]])),
    check("none", [100, 100, 0, 0, 0, 0, 0], Of(<<"of_small">>)),
    check("not to be read", [[100, 0, 0, 0, 0, 0, 0]], lists:usort([Of(Table) || Table <- [<<"of_bag">>, <<"of_packed">>, <<"of_private">>]])),
    Holders = [Row || #{holders := Rows} <- Looks, Row <- Rows],
    check("who holds some", [<<"of_nested">>, <<"of_parts">>, <<"of_shared">>, <<"of_whole">>],
          lists:sort([Name || #{name := <<"of_", _/binary>> = Name, owner := _, memory_bytes := _} <- Holders])),
    %% What was read is not kept.
    call(Target, stop, [Tables]),
    wait(fun() -> call(Target, erlang, memory, [binary]) < 20000000 end, 5000),
    agent_client:leave(Agent).

receive_buffers(Target) ->
    Agent = join(Target),
    Look = fun(N) -> value(ports, lists:last([agent_client:sample(Agent, N, [memory, ports])])) end,
    check("where there are few binaries", false, maps:is_key(buffers, Look(1))),
    Sockets = call(Target, receiving, [40, 1000000]),
    #{buffers := Buffers} = Look(2),
    check("of connections in passive mode", #{passive => 40, bytes => 40000000}, Buffers),
    check("which they have", call(Target, erlang, memory, [binary]), fun(Bytes) -> Bytes > 40000000 end),
    call(Target, stop, [Sockets]),
    agent_client:leave(Agent).

%% Its tables, without Mnesia.
mnesia(Target) ->
    Agent = join(Target),
    Look = fun(N) -> {value(counts, agent_client:sample(Agent, N, [counts])), value(dist, agent_client:sample(Agent, N, [dist]))} end,
    {None, #{mnesia := []}} = Look(1),
    check("without it", false, maps:is_key(mnesia, None)),
    Mnesia = call(Target, mnesia, []),
    {#{mnesia := Told}, #{mnesia := []}} = Look(2),
    check("counters", #{commits => 1, restarts => 2, failures => 3, log_writes => 2040, log_dumped => 1000, log_threshold => 100}, Told),
    call(Target, stop, [Mnesia]),
    agent_client:leave(Agent).

%% With so many processes a round takes some samples, and a list of them is made beside, now and then: what is hot at first is
%% told by the one after the very first round; a new one when a list and a round have passed, and from then on in each.
hot_among_many(Target) ->
    Idle = call(Target, idle, [100000]),
    Hot = call(Target, busy, [1]),
    Agent = join(Target),
    check("the first one", found_in_rounds(Hot, Agent, 1) orelse found(Hot, Agent)),
    check("in each", [true, true, true], [found(Hot, Agent) || _ <- [1, 2, 3]]),
    call(Target, stop, [Hot]),
    Later = call(Target, busy, [1]),
    check("a later one", found_in_rounds(Later, Agent, 4)),
    check("that in each", [true, true, true], [found(Later, Agent) || _ <- [1, 2, 3]]),
    agent_client:leave(Agent),
    %% With so many, taking the module out would be felt: the next one does, when there are fewer.
    check("all but the module", ?CLEAN#{module => true}, call(Target, state, [agent_client:name()])),
    [call(Target, stop, [P]) || P <- [Idle, Later]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 5000),
    agent_client:leave(join(Target)).

%% Whether the one that the process has started is told in the sample of the second that follows.
found(Keeper, Agent) -> element(1, found_or_last(Keeper, Agent)).

%% The same before so many rounds have ended. One round may have begun before the process did, one more may still go by the
%% list of that time. How many samples a round takes depends on the machine.
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

%% Without a process of its own on the target, which would be new and gone too.
ask(Population, Question) ->
    Population ! {self(), Question},
    receive {Population, Answer} -> Answer after 30000 -> exit(no_answer) end.

%%% Closer looks ----------------------------------------------------------------------------------------------

new_processes(#target{release = Release} = Target) ->
    Population = call(Target, population, [100]),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, spawns]),
    {50, 0} = ask(Population, {turnover, 0, 50}),
    agent_client:sample(Agent, 2, [procs]),
    #{new := 50, sampled := 20, calls := Calls} = value(spawns, agent_client:sample(Agent, 3, [procs, spawns])),
    Worker = {<<"agent_target">>, <<"worker">>, 0},
    Parent = case Release >= 25 of true -> {<<"agent_target">>, <<"population_loop">>, 1}; false -> undefined end,
    check("who made them", [{Worker, <<>>, Parent, 20}], Calls),
    agent_client:leave(Agent),
    call(Target, stop, [Population]).

%% What has become of them: 20 of 50 are asked for first; all of these live, then half of all have ended.
looked_at_again(Target) ->
    Population = call(Target, population, [10]),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, spawns]),
    {50, 0} = ask(Population, {turnover, 0, 50}),
    agent_client:sample(Agent, 2, [procs]),
    #{again := Waiting} = value(spawns, agent_client:sample(Agent, 3, [procs, spawns])),
    Worker = {<<"agent_target">>, <<"worker">>, 0},
    check("they wait", Waiting, fun([{Of, 20, waiting, [At | _], 20, 0, []}]) -> Of =:= Worker andalso At =:= Worker; (_) -> false end),
    {0, 60} = ask(Population, {turnover, 60, 0}),
    #{again := Ended} = value(spawns, agent_client:sample(Agent, 4, [procs, spawns])),
    check("they have ended", [{Worker, 20, ended, [], 20, 0, []}], Ended),
    #{again := None} = value(spawns, agent_client:sample(Agent, 5, [procs, spawns])),
    check("they are forgotten", [], None),
    agent_client:leave(Agent),
    call(Target, stop, [Population]).

large_arguments(Target) ->
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, spawns]),
    [Large, Small] = [call(Target, giving, [5, Elements]) || Elements <- [20000, 100]],
    agent_client:sample(Agent, 2, [procs]),
    #{given := Given} = value(spawns, agent_client:sample(Agent, 3, [procs, spawns])),
    Call = {<<"agent_target">>, <<"given">>, 1},
    IsRight = fun([{Of, _, 5, Bytes}]) -> Of =:= Call andalso abs(Bytes - 5 * 20000 * 2 * 8) < 100000; (_) -> false end,
    check("arguments", Given, IsRight),
    #{given := Later} = value(spawns, agent_client:sample(Agent, 4, [procs, spawns])),
    check("of new ones only", Later, []),
    agent_client:leave(Agent),
    [call(Target, stop, [Pid]) || Pid <- [Large, Small]].

new_atoms(Target) ->
    Agent = join(Target),
    Make = fun(Parts) -> call(Target, erlang, list_to_atom, [lists:concat(Parts)]) end,
    %% No other run has made them in this node.
    Made = erlang:unique_integer([positive]) + erlang:system_time(),
    agent_client:sample(Agent, 1, [atoms]),
    [Make(["größe-", Made, "-", N]) || N <- lists:seq(1, 30)],
    [Make(["topic", Made, "/", Kind, N]) || N <- lists:seq(1, 4), Kind <- [a, b]],
    [Make([N, "alone", Made]) || N <- lists:seq(1, 2)],
    #{new := New, sampled := Sampled, beginnings := Beginnings} = value(atoms, agent_client:sample(Agent, 2, [atoms])),
    check("new", New, fun(N) -> N >= 40 end),
    check("looked at", 40 =< Sampled andalso Sampled =< 50, true),
    Number = integer_to_binary(Made),
    check("as far as they are alike", [{<<"größe-"/utf8, Number/binary, "-">>, 30}, {<<"topic", Number/binary, "/">>, 8}],
          lists:sublist(Beginnings, 2)),
    check("those that stand alone", [], [B || {B, _} <- Beginnings, binary:match(B, <<"alone">>) =/= nomatch]),
    check("once", #{beginnings => []}, maps:with([beginnings], value(atoms, agent_client:sample(Agent, 3, [atoms])))),
    agent_client:leave(Agent).

waiting_for(Target) -> waiting_for(Target, fun(Holding) -> call(Target, services, [Holding]) end).

waiting_for(Target, Peered) ->
    Holding = call(Target, holding, [40]),
    Holder = list_to_binary(call(Target, erlang, pid_to_list, [call(Target, held, [Holding])])),
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [procs, {stands, #{sample => 1000}}, processes]),
    #{total := Total, sampled := Sampled, waiting := Waiting, rows := Rows, waited_for := For} = value(stands, Sample),
    %% A node with so few is looked at as a whole but for the agent's own processes.
    check("looked at", Sampled, fun(N) -> N > 80 andalso N < Total end),
    check("waiting", Waiting, fun(N) -> N > 40 andalso N =< Sampled end),
    [{Stack, 40, 0, On}] = [Row || {_, 40, _, _} = Row <- Rows],
    check("where they stand", [{<<"gen">>, <<"do_call">>, 4}, {<<"gen_server">>, <<"call">>, 3}], lists:sublist(Stack, 2)),
    check("for whom", [{Holder, 40}], On),
    [{_, Status, 0, [Top | _], Peers}] = [W || {Pid, _, _, _, _} = W <- For, Pid =:= Holder],
    check("whom it talks to", Peered(Holding), Peers),
    check("what that does", {waiting, <<"agent_target">>}, {Status, element(1, Top)}),
    [#{by := By}] = [Row || #{pid := Pid} = Row <- maps:get(rows, value(processes, Sample)), Pid =:= Holder],
    check("a closer look at it", true, lists:member(waited_for, By)),
    agent_client:leave(Agent),
    call(Target, stop, [Holding]).

waiting_for_one_behind(Target) ->
    Holding = call(Target, holding_for_another, [40]),
    [Holder, Busy] = [list_to_binary(call(Target, erlang, pid_to_list, [call(Target, Which, [Holding])])) || Which <- [held, waited_for]],
    wait(fun() -> {message_queue_len, 1040} =:= call(Target, erlang, process_info, [call(Target, held, [Holding]), message_queue_len]) end, 5000),
    Agent = join(Target),
    #{waited_for := For} = value(stands, agent_client:sample(Agent, 1, [procs, {stands, #{sample => 1000}}])),
    [On] = [On || {Pid, waiting, 1040, _, On} <- For, Pid =:= Holder],
    check("the one with a message", [Busy], On),
    check("who is looked at then", true, lists:keymember(Busy, 1, For)),
    agent_client:leave(Agent),
    call(Target, stop, [Holding]).

%% One that works, and waits for others most of the time; a server that waits in its loop tells nothing.
waiting_amidst(Target) ->
    Collecting = call(Target, collecting, [300]),
    Collector = list_to_binary(call(Target, erlang, pid_to_list, [call(Target, held, [Collecting])])),
    Agent = join(Target),
    wait(fun() ->
             Looks = [agent_client:sample(Agent, N, [procs, ran]) || N <- lists:seq(1, 20)],
             check("running", [N || L <- Looks, #{sampled := N} <- [value(ran, L)], N < 0 orelse N > 6], []),
             Rows = maps:get(rows, value(processes, agent_client:sample(Agent, 21, [processes]))),
             [{Ran, Stood}] = [{R, S} || #{pid := Pid, ran := R, stood := S} <- Rows, Pid =:= Collector],
             check("at most so often", lists:sum([Count || {_, Count} <- Ran ++ Stood]), fun(Sum) -> Sum =< 20 end),
             Others = [Stack || #{stood := S} <- Rows, {Stack, _} <- S, {<<"gen_server">>, <<"loop">>, 7} =:= hd(Stack)],
             check("loops", [], Others),
             lists:any(fun({Stack, _}) -> [M || {<<"erlang">>, <<"garbage_collect">>, _} = M <- lists:sublist(Stack, 2)] =/= [] end, Stood)
         end, 30000),
    agent_client:leave(Agent),
    call(Target, stop, [Collecting]).

%% It does nothing, and others do much.
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

%% How many links and monitors there are is not known there.
waiting_for_a_hub(Target) -> waiting_for(Target, fun(_) -> [] end).

%% None of them lives until the next sample; between samples, too.
seen_by_chance(Target) ->
    Toiling = call(Target, toiling, []),
    Agent = join(Target),
    wait(fun() ->
             [agent_client:sample(Agent, N, [procs, ran]) || N <- [1, 2]],
             receive after 1000 -> ok end,
             Rows = maps:get(at_work, value(processes, agent_client:sample(Agent, 3, [procs, ran, processes]))),
             check("rows", Rows, fun(List) -> length(List) =< 40 end),
             check("how", [How || {_, _, How, _, _} <- Rows, not lists:member(How, [ran, ready, collects])], []),
             lists:sum([Count || {_, _, _, Stack, Count} <- Rows, {_, <<"toil">>, 2} <- Stack]) >= 2
         end, 30000),
    agent_client:leave(Agent),
    call(Target, stop, [Toiling]).

%% Half of the receivers get a small one at a time, the others one of 80 kB.
weighed_messages(Target) ->
    Sending = call(Target, sending, [20, 5000]),
    Agent = join(Target),
    check("nobody known to work", 0, maps:get(sampled, value(weigh, agent_client:sample(Agent, 1, [procs, weigh])))),
    wait(fun() ->
             Sample = agent_client:sample(Agent, 2, [procs, weigh, messages, processes]),
             #{active := Active, sampled := Sampled, us := Us, sizes := Sizes, rows := Rows} = value(messages, Sample),
             Sampled > 0 andalso
                 begin
                     check("looked at", {Active, Sampled}, fun({A, S}) -> A >= S andalso S =< 60 end),
                     check("microseconds", Us, fun(_) -> Us >= 4000 andalso Us < 1000000 end)
                 end,
             %% One that comes between the look at a queue and that at the heap makes another one seem twice as large.
             [] =:= [0, 80000] -- [Bytes div Count || {Count, Bytes} <- Sizes] andalso
                 begin
                     [{Receiver, _, Heaviest} | Others] = Rows,
                     check("the heaviest first", Others, fun(_) -> lists:all(fun({_, _, Bytes}) -> Bytes =< Heaviest end, Others) end),
                     [#{by := By, initial_call := Call}] = [Row || #{pid := Pid} = Row <- maps:get(rows, value(processes, Sample)), Pid =:= Receiver],
                     check("a closer look at the receiver", true, lists:member(message, By)),
                     check("who that is", {<<"agent_target">>, <<"take_all">>, 0}, Call),
                     true
                 end
         end, 30000),
    agent_client:leave(Agent),
    call(Target, stop, [Sending]).

%%% Ends ------------------------------------------------------------------------------------------------------

crashes(Target) ->
    [#{parent := Parent} = Row | _] = Rows = ends(error, Target),
    check("the supervisor", {<<"its_supervisor">>, {<<"supervisor">>, <<"agent_target">>, 1}},
          {maps:get(parent_name, Row), maps:get(parent_call, Row)}),
    check("its pid", Parent, fun(P) -> binary:first(P) =:= $< end),
    check("the child", {<<"its_child">>, {<<"agent_target">>, <<"child">>, 1}}, {maps:get(name, Row), maps:get(call, Row)}),
    check("the reason", <<"badmatch">>, maps:get(reason, Row)),
    [{Function, Line} | _] = maps:get(stack, Row),
    check("the function", {<<"agent_target">>, <<"fails">>, 1}, Function),
    check("the line", Line, fun(L) -> L > 0 end),
    check("no data", nomatch, binary:match(term_to_binary(Rows), <<"4111">>)).

unanswered(Target) ->
    [Call | _] = ends(call, Target),
    check("a call", {<<"timeout">>, <<"its_callee">>, [{{<<"gen_server">>, <<"call">>, 3}, 0}]},
          {maps:get(reason, Call), maps:get(to, Call), maps:get(stack, Call)}).

killed(Target) ->
    [Row | _] = ends(heap, Target),
    check("killed", {<<"killed">>, 100000}, {maps:get(reason, Row), maps:get(heap_limit_words, Row)}).

in_order(Target) ->
    Rows = ends(in_order, Target),
    check("nothing but numbers", [], [Row || Row <- Rows, is_map_key(reason, Row) orelse is_map_key(name, Row)]),
    check("no data", nomatch, binary:match(term_to_binary(Rows), <<"4111">>)).

line(Target) ->
    Supervised = call(Target, supervised, [line]),
    Agent = join(Target),
    Rows = wait_for_ends(Agent, [], 6, 50),
    agent_client:leave(Agent),
    call(Target, stop, [Supervised]),
    check("one fails", [<<"its_child">>], lists:usort([Name || #{name := Name, reason := _} <- Rows])),
    Siblings = [Row || #{name := _} = Row <- Rows, not is_map_key(reason, Row)],
    check("the other one", [<<"its_sibling">>], lists:usort([Name || #{name := Name} <- Siblings])),
    check("nothing else of it", [], [Row || Row <- Siblings, is_map_key(call, Row) orelse is_map_key(stack, Row)]).

%% What is told of a child that ends so, in some samples until three ends were seen.
ends(How, Target) ->
    Supervised = call(Target, supervised, [How]),
    Agent = join(Target),
    Rows = wait_for_ends(Agent, [], 3, 50),
    agent_client:leave(Agent),
    call(Target, stop, [Supervised]),
    Rows.

wait_for_ends(Agent, Rows, Least, Tries) ->
    timer:sleep(200),
    #{rows := New} = value(crashes, agent_client:sample(Agent, 1, [procs, crashes])),
    All = [Row || #{parent_name := <<"its_supervisor">>} = Row <- New] ++ Rows,
    case lists:sum([N || #{count := N} <- All]) of
        Count when Count >= Least -> lists:reverse(All);
        _ when Tries > 0 -> wait_for_ends(Agent, All, Least, Tries - 1)
    end.

huge_reason(Target) ->
    Respawned = call(Target, respawned, [lists:seq(1, 1000000)]),
    Agent = join(Target),
    Statuses = [begin
                    timer:sleep(200),
                    Sample = agent_client:sample(Agent, N, [counts, procs, crashes]),
                    [Status || {_, Status, _, _, _} <- items(Sample)]
                end || N <- lists:seq(1, 20)],
    check("all else goes on", [], [S || [Counts, Procs, _] = S <- Statuses, Counts =/= ok orelse Procs =/= ok]),
    check("it begins anew", Statuses, fun(All) -> lists:member(ok, [Last || [_, _, Last] <- All]) end),
    agent_client:leave(Agent),
    call(Target, stop, [Respawned]).

some_of_many(Target) ->
    Idle = call(Target, idle, [40000]),
    Agent = join(Target),
    check("no list yet", 0, maps:get(sampled, value(stands, agent_client:sample(Agent, 1, [procs, stands])))),
    wait(fun() ->
             [{stands, ok, _, Us, #{total := Total, sampled := Sampled, rows := Rows}}] =
                 [Item || {stands, _, _, _, _} = Item <- items(agent_client:sample(Agent, 2, [procs, {stands, #{sample => 100}}]))],
             Sampled > 0 andalso
                 begin
                     check("how many", {Total, Sampled}, fun({T, S}) -> T > 40000 andalso S > 20 andalso S =< 100 end),
                     check("where", [N || {[{<<"agent_target">>, <<"forever">>, 0} | _], N, 0, []} <- Rows],
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
    %% It takes no messages; each of these has 16 bytes for a number.
    Waiting = spawn(node_of(Target), timer, sleep, [infinity]),
    [call(Target, erlang, send, [Waiting, lists:seq(1, 20000)]) || _ <- [1, 2]],
    Agent = join(Target),
    %% Each fourth round looks closely at a process with a small heap.
    Rows = sample_rounds(Agent, 6),
    Row = fun(Pid) ->
              Bin = list_to_binary(call(Target, erlang, pid_to_list, [Pid])),
              case [R || #{pid := P} = R <- Rows, P =:= Bin] of [R] -> R; [] -> exit({not_listed, Bin}) end
          end,
    #{by := By, heap_bytes := Bytes, initial_call := {<<"agent_target">>, _, _}} = Row(Large),
    check("memory", lists:member(memory, By) andalso Bytes > 16000000),
    check("what was started by proc_lib", maps:get(initial_call, Row(Child)),
          fun({<<"agent_target">>, _, _}) -> Release >= 27;
             ({child_of, <<"agent_target:", _/binary>>}) -> Release =:= 25;
             ({<<"proc_lib">>, <<"init_p">>, _}) -> Release =:= 23
          end),
    #{by := By3, message_queue_len := 2, fragment_bytes := Loose, heap_bytes := Heap, memory_bytes := Memory} = Row(Waiting),
    %% A collection may have moved them into the heap; beside it are their heads and the process's structure.
    check("waiting messages", lists:member(queue, By3) andalso Loose < Heap andalso Heap >= 640000),
    check("what is beside the heap", Memory - Heap > 2 * 88 andalso Memory - Heap < 4000),
    #{by := By2, binary_vheap_bytes := Vheap} = Row(Binary),
    check("binary", {lists:member(binary, By2), Vheap div 1000000}, {true, 50}),
    %% Not what a process says of itself while it answers.
    check("status", [waiting, waiting], [maps:get(status, Row(P)) || P <- [Large, Binary]]),
    #{delta_reductions := Delta} = Spinning = busiest(Agent, 100),
    check("reductions", Delta > 1000),
    Release < 25 orelse check("parent", list_to_binary(call(Target, erlang, pid_to_list, [Busy])), maps:get(parent, Spinning)),
    agent_client:leave(Agent),
    exit(Waiting, kill),
    exit(Maker, kill),
    [call(Target, stop, [P]) || P <- [Large, Binary, Busy, Idle]].

%% The row of the process that spins; its reductions are counted when it is scheduled out.
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

%% Also across the point where the number of a pid outgrows its first part.
short_lived(Target) ->
    Agent = join(Target),
    [counts_spawned(Agent, Target, N, Many) || {N, Many} <- [{1, 100}, {3, 40000}]],
    {beamtune, left} = agent_client:leave(Agent).

%% Most slots are held all the time.
small_table(Target) ->
    call(Target, agent_target, idle, [500]),
    Agent = join(Target),
    [counts_spawned(Agent, Target, N, 20000) || N <- [1, 3]],
    %% Where hardly any is free, none is taken, and the others are counted all the same.
    call(Target, agent_target, idle, [400]),
    Counts = value(counts, agent_client:sample(Agent, 5, [counts])),
    check("nearly full", {maps:is_key(spawned, Counts), maps:get(processes, Counts)}, fun({Is, N}) -> not Is andalso N > 924 end),
    {beamtune, left} = agent_client:leave(Agent).

counts_spawned(Agent, Target, N, Many) ->
    Spawned = fun(At) -> maps:get(spawned, value(counts, agent_client:sample(Agent, At, [counts]))) end,
    Before = Spawned(N),
    call(Target, agent_target, short_lived, [Many]),
    check({"started", Many}, Spawned(N + 1) - Before, fun(Counted) -> Counted >= Many andalso Counted < 3 * Many + 200 end).
