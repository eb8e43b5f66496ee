%% Events: what the VM reports through system_monitor. One watcher for all clients takes them, since the VM has only one
%% system_monitor; it leaves somebody else's alone, and pauses in a flood, in which the messages cost more than they are worth.

%% What the VM is asked to tell of by itself: collections and time slices that take so many milliseconds, and heaps of so many words
%% after a collection (128 MB). A slice ends after about a millisecond; others take 240 to 500 ms for these limits, and learn of
%% what holds up a whole scheduler for 200 ms from its users.
-define(EVENTS, [{long_gc, 100}, {long_schedule, 50}, {large_heap, 16777216}, busy_port, busy_dist_port]).
%% So many of them in this time are a flood, in which the telling costs more than it tells: then none are taken for a while.
-define(FLOOD, 100).
-define(FLOOD_MS, 100).
-define(PAUSE_MS, 1000).
-define(MOST_PAUSE_MS, 60000).
%% Where a scheduler does not answer, for this and as much again by chance.
-define(BUSY_MS, 250).
%% How many of the last ones are kept for clients that have not read them yet.
-define(EVENTS_KEPT, 50).
%% Between two looks whether somebody else's system_monitor has gone.
-define(TRY_AGAIN_MS, 10000).

start_watcher(true, #agent{watcher = none} = Agent) ->
    Agent#agent{watcher = spawn_opt(fun() -> watcher() end, [link, {priority, high}])};
start_watcher(_, Agent) -> Agent.

%% how: `monitor' (the VM's only system_monitor, taken because nobody had it), {taken, by whom}, or `paused' in a flood. What is
%% set ends with this process, by the VM itself.
%%
%% From OTP 28 on a trace session could be ours alone (trace:system/3). It is not, because its end takes the VM's lock for changing
%% code. On OTP 29.1.2 that lock may stay taken for ever when several want it at once: then nobody can load or purge code any more
%% (the purger and who loads stay suspended). agent/README.md has what was tried.
-record(events, {how, since_ms = 0, told = #{}, rows = [], last = 0, in_window = 0, window_ms = 0, floods = 0, pause_ms = ?PAUSE_MS, flood_ms = none}).

watcher() -> watcher(begin_watching(#events{})).

%% Whenever a system_monitor is set, all schedulers come to rest: with one that is inside a long NIF all others would wait for that, so
%% they are asked before.
begin_watching(Events) ->
    case erlang:system_monitor() of
        undefined ->
            case schedulers_answer() of
                true -> unless_anothers(erlang:system_monitor(self(), ?EVENTS), Events, fun() -> Events#events{how = monitor, since_ms = now_ms()} end);
                %% By chance, since a job that comes each second would be met each time.
                false -> later(?BUSY_MS + erlang:phash2(erlang:monotonic_time(), ?BUSY_MS), paused, Events)
            end;
        {Owner, _} when Owner =:= self() -> Events#events{how = monitor};
        {Owner, _} -> later(?TRY_AGAIN_MS, {taken, Owner}, Events)
    end.

later(Ms, How, Events) ->
    erlang:start_timer(Ms, self(), again),
    Events#events{how = How}.

%% What stood there a moment ago is somebody else's, if he has come in between: it stands there again.
unless_anothers({Owner, Options}, Events, _) when Owner =/= self() ->
    erlang:system_monitor(Owner, Options),
    later(?TRY_AGAIN_MS, {taken, Owner}, Events);
unless_anothers(_, _, Then) -> Then().

%% For a second, and twice as long each time as long as floods follow each other.
pause_watching(#events{floods = Floods, flood_ms = Last, pause_ms = Before} = Events) ->
    Now = now_ms(),
    Ms = case is_integer(Last) andalso Now - Last < 2 * Before of
             true -> min(?MOST_PAUSE_MS, 2 * Before);
             false -> ?PAUSE_MS
         end,
    Flooded = Events#events{floods = Floods + 1, flood_ms = Now + Ms, pause_ms = Ms},
    case erlang:system_monitor() of
        {Owner, _} when Owner =:= self() ->
            case schedulers_answer() of
                true -> unless_anothers(erlang:system_monitor(undefined), Flooded, fun() -> later(Ms, paused, Flooded) end);
                %% Tried again with the next so many.
                false -> Events#events{in_window = 0, window_ms = Now}
            end;
        _ -> later(Ms, paused, Flooded)
    end.

watcher(Events) ->
    receive
        {monitor, Subject, Kind, Info} -> watcher(happened(Kind, Subject, Info, Events));
        {events, From, Since} ->
            #events{how = How, told = Told, rows = Rows, last = Last, floods = Floods} = Now = still_ours(Events),
            From ! {self(), How, Floods, Told, [R || {Number, _} = R <- Rows, Number > Since], Last},
            watcher(Now);
        {timeout, _, again} when element(1, Events#events.how) =:= taken; Events#events.how =:= paused ->
            watcher(begin_watching(Events));
        _ -> watcher(Events)
    end.

%% Somebody may have put his own in our place.
still_ours(#events{how = monitor} = Events) -> begin_watching(Events);
still_ours(Events) -> Events.

%% Of a collection that had begun before it was asked to tell, the VM tells the time since its own start (garbage_collect in erl_gc.c; on a
%% dirty scheduler one goes on meanwhile).
happened(long_gc, Subject, [{timeout, Ms} | _] = Info, #events{since_ms = Since} = Events) ->
    case now_ms() - Since of
        Watched when Ms > Watched + 1 -> Events;
        _ -> add_event(long_gc, Subject, Info, Events)
    end;
happened(Kind, Subject, Info, Events) -> add_event(Kind, Subject, Info, Events).

add_event(Kind, Subject, Info, #events{told = Told, rows = Rows, last = Last} = Events) ->
    {Count, Sum} = maps:get(Kind, Told, {0, 0}),
    Value = event_value(Kind, Info),
    Row = {Last + 1, {Kind, now_ns(), Subject, Value, Info}},
    flood(Events#events{told = Told#{Kind => {Count + 1, Sum + Value}}, last = Last + 1,
                        rows = lists:sublist([Row | Rows], ?EVENTS_KEPT)}).

flood(#events{how = paused} = Events) -> Events;
flood(#events{in_window = Count, window_ms = Begin} = Events) ->
    case now_ms() of
        Now when Now - Begin > ?FLOOD_MS -> Events#events{in_window = 1, window_ms = Now};
        _ when Count < ?FLOOD -> Events#events{in_window = Count + 1};
        _ -> pause_watching(Events)
    end.

%% Milliseconds, or bytes of heap; 0 where it has none.
event_value(large_heap, Info) -> event_heap(Info);
event_value(_, [{timeout, Ms} | _]) -> Ms;
event_value(_, _) -> 0.

event_heap(Info) ->
    erlang:system_info(wordsize)
        * lists:sum([proplists:get_value(K, Info, 0) || K <- [old_heap_block_size, heap_block_size, mbuf_size]]).

events(#state{watcher = Watcher, last_event = Since, features = Features, timeout_ms = Timeout} = State) when is_pid(Watcher) ->
    Watcher ! {events, self(), Since},
    receive
        {Watcher, How, Floods, Told, Rows, Last} ->
            Find = fun(Row) -> event_row(Row, Features) end,
            Described = details(Find, lists:reverse(Rows), State),
            Value = #{how => case How of {taken, _} -> taken; _ -> How end, floods => Floods,
                      counts => [{Kind, Count, Sum} || {Kind, {Count, Sum}} <- maps:to_list(Told)],
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
    Who = case is_pid(Subject) andalso identity(Subject, Features) of
              #{} = Identity -> maps:with([name, label, call], Identity);
              _ -> #{}
          end,
    maps:merge(Row, maps:merge(Of, Who)).

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
