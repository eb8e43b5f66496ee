%% @doc Tests what the agent enables in the VM: microstate accounting, and the system monitor for events. Settings of other tools
%% must not change. Run by agent_test.
-module(agent_switches_test).
-export([tests/0]).

-include("agent_test.hrl").

-import(agent_nodes, [call/3, call/4, check/2, check/3, clean/2, items/1, join/1, start/4, stop/1, value/2, wait/2]).

%% See agent_test:tests/0.
tests() ->
    [{"accounting_is_on_part_of_the_time", fun msacc_in_windows/1},
     {"accounting_that_was_on_before_stays_on", fun msacc_was_on/1},
     {"accounting_that_another_tool_switches_on_stays_on", fun msacc_switched_on/1},
     {"accounting_that_another_tool_switches_off_is_on_in_the_next_window", fun msacc_switched_off/1},
     {"long_schedules_long_gcs_and_large_heaps_are_reported_with_their_process", fun long_events/1},
     {"a_gc_that_began_before_monitoring_is_not_reported_with_the_age_of_the_node", fun gc_begun_before/1},
     {"processes_that_wait_for_a_busy_dist_port_are_reported", fun busy_node/1},
     {"system_monitor_of_another_tool_stays", fun foreign_monitor/1},
     {"system_monitor_set_later_by_another_tool_stays", fun later_monitor/1},
     {"events_are_paused_in_a_flood", fun flood/1}].

%%% Accounting ------------------------------------------------------------------------------------------------

msacc_in_windows(Target) ->
    Agent = join(Target),
    {_, Before, Begin} = accounted(Agent, 1),
    %% Each sample requests a window of 20 ms. With more windows, one that is shortened or extended for a thread because the host is busy
    %% matters less.
    Next = fun() -> receive after 100 -> accounted(Agent, 2) end end,
    [Next() || _ <- lists:seq(1, 14)],
    InWindows = fun() ->
                    {Unit, After, End} = Next(),
                    %% Every thread is always in some state, so its counters add up to the total length of the windows.
                    Shares = [1.0e9 * (A - B) / Unit / (End - Begin) || {Id, A} <- maps:to_list(After), {I, B} <- maps:to_list(Before), I =:= Id],
                    put(shares, Shares),
                    {Min, Max} = {lists:min(Shares), lists:max(Shares)},
                    Min > 0.05 andalso Max < 0.6 andalso Max < 1.3 * Min
                end,
    try wait(InWindows, 20000)
    catch exit:{wait_timeout, _, _} -> exit({"windows of the same length for all threads", get(shares)})
    end,
    wait(fun() -> not is_accounting(Target) end, 5000),
    agent_client:leave(Agent).

%% {counter units per second, sum of the counters by thread, time in ns}
accounted(Agent, Seq) ->
    Sample = agent_client:sample(Agent, Seq, [facts, msacc]),
    {msacc, ok, At, _, #{threads := Threads}} = lists:keyfind(msacc, 1, items(Sample)),
    {maps:get(perf_counter_per_s, value(facts, Sample)),
     maps:from_list([{{Type, Id}, lists:sum(Counters)} || {Type, Id, Counters} <- Threads]), At}.

is_accounting(Target) -> maps:get(msacc, call(Target, state, [agent_client:name()])).

msacc_was_on(Target) ->
    call(Target, erlang, system_flag, [microstate_accounting, true]),
    #{joined := #{msacc_was_on := true}} = Agent = join(Target),
    agent_client:sample(Agent, 1, ?HOT),
    agent_client:leave(Agent),
    clean(Target, maps:put(msacc, true, ?CLEAN)),
    call(Target, erlang, system_flag, [microstate_accounting, false]).

msacc_switched_on(Target) ->
    Agent = join(Target),
    wait(fun() -> not is_accounting(Target) end, 5000),
    call(Target, erlang, system_flag, [microstate_accounting, true]),
    %% Samples during some windows.
    [begin receive after 50 -> ok end, agent_client:sample(Agent, Seq, [msacc]) end || Seq <- lists:seq(1, 10)],
    check("on", true, is_accounting(Target)),
    agent_client:leave(Agent),
    clean(Target, maps:put(msacc, true, ?CLEAN)),
    call(Target, erlang, system_flag, [microstate_accounting, false]).

msacc_switched_off(Target) ->
    Agent = join(Target),
    call(Target, erlang, system_flag, [microstate_accounting, false]),
    {_, Before, _} = accounted(Agent, 1),
    wait(fun() -> {_, After, _} = accounted(Agent, 2), After =/= Before end, 5000),
    agent_client:leave(Agent).

%%% Events ----------------------------------------------------------------------------------------------------

%% Returns the events of the first sample in which system_monitor is set. The agent sets it only when all schedulers answer, which
%% may take several samples on a busy host.
monitoring(Agent) ->
    wait(fun() ->
             put(events, value(events, agent_client:sample(Agent, 1, [events]))),
             maps:get(how, get(events)) =:= monitor
         end, 20000),
    get(events).

%% Takes samples until Select returns rows, and returns these rows.
events(_, _, 0) -> exit(no_such_event);
events(Agent, Select, Tries) ->
    Value = value(events, agent_client:sample(Agent, Tries, [events])),
    case Select(Value) of
        [_ | _] = Found -> Found;
        [] -> receive after 100 -> events(Agent, Select, Tries - 1) end
    end.

of_kind(Kind, Subject) ->
    Id = list_to_binary(rpc:call(node(Subject), erlang, pid_to_list, [Subject])),
    fun(#{rows := Rows}) -> [R || #{kind := K, subject := S} = R <- Rows, K =:= Kind, S =:= Id] end.

long_events(Target) ->
    Depth = call(Target, depth, []),
    Agent = join(Target),
    #{rows := Rows, counts := Before} = monitoring(Agent),
    %% Time slices are measured in wall clock time, so any process may have long ones on a busy host.
    check("no other events yet", {[], []}, {[R || #{kind := K} = R <- Rows, K =/= long_schedule], lists:keydelete(long_schedule, 1, Before)}),
    Slow = call(Target, hanging, []),
    call(Target, hang, [Slow, Depth]),
    Longest = fun(Value) -> [R || #{value := Ms} = R <- (of_kind(long_schedule, Slow))(Value), Ms > 500] end,
    [#{in := {_, _, _}, out := {_, _, _}} | _] = events(Agent, Longest, 600),
    Large = call(Target, large, [12000000]),
    [#{value := Bytes, call := {<<"agent_target">>, _, _}} | _] = events(Agent, of_kind(large_heap, Large), 100),
    check("bytes", Bytes > 128000000),
    Large ! collect,
    [#{value := Took, heap_bytes := Heap} | _] = events(Agent, of_kind(long_gc, Large), 100),
    check("garbage collection", Took >= 100 andalso Heap > 128000000),
    #{counts := Counts} = value(events, agent_client:sample(Agent, 1, [events])),
    check("counts", [large_heap, long_gc, long_schedule], lists:sort([K || {K, N, _} <- Counts, N > 0])),
    agent_client:leave(Agent),
    [call(Target, stop, [P]) || P <- [Large, Slow]].

%% The process garbage-collects continuously, so that system_monitor is set during a garbage collection.
gc_begun_before(Target) ->
    Large = call(Target, large, [20000000]),
    [begin
         [Large ! collect || _ <- lists:seq(1, 20)],
         Begin = erlang:monotonic_time(millisecond),
         Agent = join(Target),
         wait(fun() -> {message_queue_len, 0} =:= call(Target, erlang, process_info, [Large, message_queue_len]) end, 30000),
         #{rows := Rows} = value(events, agent_client:sample(Agent, 1, [events])),
         Reported = [Ms || #{kind := long_gc, value := Ms} <- Rows],
         Monitored = erlang:monotonic_time(millisecond) - Begin,
         check({"not longer than the time of monitoring", Monitored}, [Ms || Ms <- Reported, Ms > Monitored], []),
         agent_client:leave(Agent)
     end || _ <- lists:seq(1, 5)],
    call(Target, stop, [Large]).

busy_node(#target{release = Release, root = Root, beams = Beams} = Target) ->
    #target{node = Busy} = Other = start(integer_to_list(Release), Root, Beams, []),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [events]),
    Senders = call(Target, remote_senders, [1, 4000000, call(Other, sink, [])]),
    %% While the connection is being established, the VM does not report its node.
    [#{node := Node} | _] =
        events(Agent, fun(#{rows := Rows}) ->
                          [R || #{kind := busy_dist_port, node := _, call := {<<"agent_target">>, _, _}} = R <- Rows]
                      end, 100),
    check("node", atom_to_binary(Busy, utf8), Node),
    %% More than the handshake must be reported, although the handshake is all that the VM counts as output of the port.
    #{node := Node} = sent(Agent, Node, 4000000, 100),
    call(Target, stop, [Senders]),
    agent_client:leave(Agent),
    stop(Other).

sent(Agent, Node, MinBytes, Tries) when Tries > 0 ->
    #{rows := Rows} = value(dist, agent_client:sample(Agent, 1, [dist])),
    case [R || #{node := N, out_bytes := Out} = R <- Rows, N =:= Node, Out > MinBytes] of
        [Row] -> Row;
        [] -> receive after 100 -> sent(Agent, Node, MinBytes, Tries - 1) end
    end.

foreign_monitor(Target) ->
    Owner = call(Target, watch_long_schedules, [5000]),
    Foreign = call(Target, erlang, system_monitor, []),
    Agent = join(Target),
    #{how := taken, owner := Bin} = value(events, agent_client:sample(Agent, 1, [events])),
    check("owner", list_to_binary(call(Target, erlang, pid_to_list, [Owner])), Bin),
    check("while sampling", Foreign, call(Target, erlang, system_monitor, [])),
    agent_client:leave(Agent),
    check("after leaving", Foreign, call(Target, erlang, system_monitor, [])),
    call(Target, stop, [Owner]).

later_monitor(Target) ->
    Agent = join(Target),
    monitoring(Agent),
    Owner = call(Target, watch_long_schedules, [5000]),
    #{how := taken} = value(events, agent_client:sample(Agent, 2, [events])),
    {Owner, _} = call(Target, erlang, system_monitor, []),
    agent_client:leave(Agent),
    {Owner, _} = call(Target, erlang, system_monitor, []),
    call(Target, stop, [Owner]).

flood(#target{release = Release, root = Root, beams = Beams} = Target) ->
    Other = start(integer_to_list(Release), Root, Beams, []),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [events]),
    Senders = call(Target, remote_senders, [400, 200000, call(Other, sink, [])]),
    [_] = events(Agent, fun(#{floods := N}) -> [N || N > 0] end, 200),
    call(Target, stop, [Senders]),
    agent_client:leave(Agent),
    stop(Other).
