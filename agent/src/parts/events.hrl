%% Events of system_monitor. One watcher for all clients receives them, since the VM has only one system_monitor. It does not replace
%% another process's, and pauses in a flood, in which the messages cost more than they are worth.

%% Monitored events: garbage collections and time slices of at least this many milliseconds, and heaps of at least this many words after a
%% garbage collection (128 MB). A slice normally ends after about a millisecond; other tools use limits of 240 to 500 ms, and so miss
%% what blocks a whole scheduler for 200 ms.
-define(EVENTS, [{long_gc, 100}, {long_schedule, 50}, {large_heap, 16777216}, busy_port, busy_dist_port]).
%% This many events in FLOOD_MS are a flood: then monitoring pauses, for PAUSE_MS at first.
-define(FLOOD, 100).
-define(FLOOD_MS, 100).
-define(PAUSE_MS, 1000).
-define(MAX_PAUSE_MS, 60000).
%% Pause if a scheduler does not answer: this, plus a random time up to the same.
-define(BUSY_MS, 250).
%% Number of the last events kept for clients that have not read them yet.
-define(EVENTS_KEPT, 50).
%% Pause between two checks whether another process's system_monitor is gone.
-define(TRY_AGAIN_MS, 10000).

start_watcher(true, #agent{watcher = none} = Agent) ->
    Agent#agent{watcher = spawn_opt(fun() -> watcher() end, [link, {priority, high}])};
start_watcher(_, Agent) -> Agent.

%% how: `monitor' (we are the VM's only system_monitor, which was free), {taken, Owner}, or `paused' in a flood. The VM itself resets the
%% system_monitor when this process ends.
%%
%% Since OTP 28 a trace session of our own would be possible (trace:system/3). We do not use one, because its end takes the VM's code
%% modification lock. On OTP 29.1.2 that lock may never be released when several processes want it at once: then nobody can load or
%% purge code any more (the purger and loading processes stay suspended). agent/README.md has the experiments.
-record(events, {how, since_ms = 0, counts = #{}, rows = [], last = 0, in_window = 0, window_ms = 0, floods = 0, pause_ms = ?PAUSE_MS, flood_ms = none}).

watcher() -> watcher(begin_watching(#events{})).

%% Setting a system_monitor blocks all schedulers: if one is inside a long NIF, all others would wait for it, so this is checked
%% before.
begin_watching(Events) ->
    case erlang:system_monitor() of
        undefined ->
            case schedulers_answer() of
                true -> unless_replaced(erlang:system_monitor(self(), ?EVENTS), Events, fun() -> Events#events{how = monitor, since_ms = now_ms()} end);
                %% A random pause, since a fixed one could coincide with a periodic job each time.
                false -> later(?BUSY_MS + erlang:phash2(erlang:monotonic_time(), ?BUSY_MS), paused, Events)
            end;
        {Owner, _} when Owner =:= self() -> Events#events{how = monitor};
        {Owner, _} -> later(?TRY_AGAIN_MS, {taken, Owner}, Events)
    end.

later(Ms, How, Events) ->
    erlang:start_timer(Ms, self(), again),
    Events#events{how = How}.

%% If another process has set the system_monitor in between, restores it.
unless_replaced({Owner, Options}, Events, _) when Owner =/= self() ->
    erlang:system_monitor(Owner, Options),
    later(?TRY_AGAIN_MS, {taken, Owner}, Events);
unless_replaced(_, _, Then) -> Then().

%% Pauses for a second, and twice as long each time while floods follow each other.
pause_watching(#events{floods = Floods, flood_ms = Last, pause_ms = Before} = Events) ->
    Now = now_ms(),
    Ms = case is_integer(Last) andalso Now - Last < 2 * Before of
             true -> min(?MAX_PAUSE_MS, 2 * Before);
             false -> ?PAUSE_MS
         end,
    Flooded = Events#events{floods = Floods + 1, flood_ms = Now + Ms, pause_ms = Ms},
    case erlang:system_monitor() of
        {Owner, _} when Owner =:= self() ->
            case schedulers_answer() of
                true -> unless_replaced(erlang:system_monitor(undefined), Flooded, fun() -> later(Ms, paused, Flooded) end);
                %% Retried at the next flood.
                false -> Events#events{in_window = 0, window_ms = Now}
            end;
        _ -> later(Ms, paused, Flooded)
    end.

watcher(Events) ->
    receive
        {monitor, Subject, Kind, Info} -> watcher(happened(Kind, Subject, Info, Events));
        {events, From, Since} ->
            #events{how = How, counts = Counts, rows = Rows, last = Last, floods = Floods} = Now = still_ours(Events),
            From ! {self(), How, Floods, Counts, [R || {Number, _} = R <- Rows, Number > Since], Last},
            watcher(Now);
        {timeout, _, again} when element(1, Events#events.how) =:= taken; Events#events.how =:= paused ->
            watcher(begin_watching(Events));
        _ -> watcher(Events)
    end.

%% Checks that no other process has replaced our system_monitor.
still_ours(#events{how = monitor} = Events) -> begin_watching(Events);
still_ours(Events) -> Events.

%% For a garbage collection that began before monitoring, the VM reports the time since its own start (garbage_collect in erl_gc.c; on a
%% dirty scheduler one may be under way). Such events are dropped.
happened(long_gc, Subject, [{timeout, Ms} | _] = Info, #events{since_ms = Since} = Events) ->
    case now_ms() - Since of
        Watched when Ms > Watched + 1 -> Events;
        _ -> add_event(long_gc, Subject, Info, Events)
    end;
happened(Kind, Subject, Info, Events) -> add_event(Kind, Subject, Info, Events).

add_event(Kind, Subject, Info, #events{counts = Counts, rows = Rows, last = Last} = Events) ->
    {Count, Sum} = maps:get(Kind, Counts, {0, 0}),
    Value = event_value(Kind, Info),
    Row = {Last + 1, {Kind, now_ns(), Subject, Value, Info}},
    flood(Events#events{counts = Counts#{Kind => {Count + 1, Sum + Value}}, last = Last + 1,
                        rows = lists:sublist([Row | Rows], ?EVENTS_KEPT)}).

flood(#events{how = paused} = Events) -> Events;
flood(#events{in_window = Count, window_ms = Begin} = Events) ->
    case now_ms() of
        Now when Now - Begin > ?FLOOD_MS -> Events#events{in_window = 1, window_ms = Now};
        _ when Count < ?FLOOD -> Events#events{in_window = Count + 1};
        _ -> pause_watching(Events)
    end.

%% Milliseconds, or bytes of heap; 0 if there is no value.
event_value(large_heap, Info) -> event_heap(Info);
event_value(_, [{timeout, Ms} | _]) -> Ms;
event_value(_, _) -> 0.

event_heap(Info) ->
    erlang:system_info(wordsize)
        * lists:sum([proplists:get_value(K, Info, 0) || K <- [old_heap_block_size, heap_block_size, mbuf_size]]).

events(#state{watcher = Watcher, last_event = Since, features = Features, timeout_ms = Timeout} = State) when is_pid(Watcher) ->
    Watcher ! {events, self(), Since},
    receive
        {Watcher, How, Floods, Counts, Rows, Last} ->
            Find = fun(Row) -> event_row(Row, Features) end,
            Described = details(Find, lists:reverse(Rows), State),
            Value = #{how => case How of {taken, _} -> taken; _ -> How end, floods => Floods,
                      counts => [{Kind, Count, Sum} || {Kind, {Count, Sum}} <- maps:to_list(Counts)],
                      lost => Last - Since - length(Rows),
                      rows => [Row || {_, Row} <- Described]},
            {case How of
                 {taken, Owner} ->
                     [OwnerRow] = read_all(fun(Pid, _) -> owner(Pid, Features) end, [Owner]),
                     case OwnerRow of #{} -> maps:merge(Value, OwnerRow); _ -> Value#{owner => id(Owner)} end;
                 _ -> Value
             end, State#state{last_event = Last}}
    after Timeout div 2 -> error(no_answer)
    end;
events(_) ->
    throw(unsupported).

event_row({_, {Kind, At, Subject, Value, Info}}, Features) ->
    Row = #{kind => Kind, at_ns => At, subject => id(Subject), value => Value},
    Of = case Kind of
             long_schedule -> #{in => mfa(proplists:get_value(in, Info)), out => mfa(proplists:get_value(out, Info))};
             long_gc -> #{heap_bytes => event_heap(Info)};
             busy_port when is_port(Info) -> port_of(Info);
             busy_dist_port when is_port(Info); is_pid(Info) -> #{port => id(Info), node => node_of(Info)};
             _ -> #{}
         end,
    Described = case is_pid(Subject) andalso identity(Subject, Features) of
              #{} = Identity -> maps:with([name, label, call], Identity);
              _ -> #{}
          end,
    maps:merge(Row, maps:merge(Of, Described)).

port_of(Port) ->
    case erlang:port_info(Port, name) of
        {_, Name} -> #{port => id(Port), port_kind => kind(Name)};
        undefined -> #{port => id(Port)}
    end.

node_of(Controller) ->
    case lists:keyfind(Controller, 2, erlang:system_info(dist_ctrl)) of
        {Node, _} -> bin(Node);
        false -> <<>>
    end.
