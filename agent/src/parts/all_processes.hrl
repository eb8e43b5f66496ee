%% `procs': reductions and message queue length of every process, and from these the busiest processes and the longest queues.
%% Both are read from outside, so no process is woken. The previous value of a process is found by its position in the list.

%% A round takes this many samples, or seconds if samples come faster; fewer if a part would have fewer than READ_AT_ONCE
%% processes (QUIET_AT_ONCE on a quiet node). The top processes are read in each sample nevertheless (see tops/2).
-define(ROUND_SAMPLES, 3).
-define(READ_AT_ONCE, 2048).
-define(QUIET_AT_ONCE, 512).
%% A node is quiet while all its processes together run fewer reductions per second than this, some 0.2 % of one core's capacity. None of
%% them can be busy then. So a round may take longer: 1/PATIENCE of the seconds since the collector began, within these limits, and
%% long enough that a part has no more than MAX_QUIET_PART processes.
-define(QUIET_PER_S, 40000).
%% A shorter period shows nothing: reductions are counted when a process is scheduled out, which may not have happened even once on a
%% VM whose CPUs are used by others (judgement).
-define(QUIET_KNOWN_NS, 100000000).
-define(PATIENCE, 2).
-define(MIN_QUIET_SAMPLES, 4).
-define(MAX_QUIET_SAMPLES, 16).
-define(MAX_QUIET_PART, 50000).
%% On a quiet node, a list table of all processes is used this many times as long.
-define(QUIET_LIST_FACTOR, 5).
%% A round takes no longer even if it exceeds the budget, up to this share of a core (millionths), which is lower on a quiet node,
%% and higher in the very first round, before which no busy process is known.
-define(ROUND_PPM, 100000).
-define(QUIET_PPM, 30000).
-define(FIRST_ROUND_PPM, 300000).
%% More work than this is not done when a sample is requested, but in steps before the next one: at priority high it would keep
%% others off a scheduler.
-define(AT_ONCE_NS, 5000000).
%% Length of one step: about that of a time slice. A step costs some 0.1 ms more, since it wakes the collector and the reader.
-define(READ_NS, 1000000).
%% A list table is used for one second per this many processes, since building it costs as much as reading all of them. The process
%% count does not tell whether there are new ones, because others end.
-define(LISTED_PER_S, 50000).

%% hot: in the very first round, without earlier values, the processes with the most reductions in total.
-record(seen, {place, counters, old, old_list, old_place, old_counters, own,
               delta = 0, queue_sum = 0, queue_max = 0, queue_nonempty = 0, new = 0, gone = 0, dead = 0, fresh = [],
               %% Active processes: number, a random sample of them, and after how many the next one is chosen.
               active = 0, chosen = {0, []}, stride, skip,
               busy, queued, hot}).

%% A small part is read on request. A large one was read since the last sample, in steps (see step/1).
procs(Top, #state{procs = Procs} = State) ->
    case part(State#state{procs = quiet(Procs#procs{top = Top}, State)}) of
        #state{procs = #procs{seen = none}} = Listing -> {nothing_read(Listing), Listing};
        Read ->
            {Value, Ended} = end_procs(Read),
            {Value, continue_before_next(Ended)}
    end.

%% Determines whether the node is quiet.
quiet(#procs{did = Before} = Procs, #state{own = Own}) ->
    case now_ns() of
        Now when Before =/= none, Now - element(1, Before) < ?QUIET_KNOWN_NS -> Procs;
        Now -> quiet(Now, Before, Procs, Own)
    end.

quiet(Now, Before, Procs, Own) ->
    {All, _} = erlang:statistics(reductions),
    Did = All - lists:sum([R || Pid <- Own, is_pid(Pid), {_, R} <- [process_info(Pid, reductions)]]),
    Procs#procs{did = {Now, Did},
                quiet = case Before of
                            {Then, Less} -> Did - Less < ?QUIET_PER_S * (Now - Then) div 1000000000;
                            none -> false
                        end}.

part(#state{procs = #procs{seen = none}} = State) ->
    case is_listing(procs, State) of
        true -> State;
        false ->
            case begin_part(State) of
                #state{procs = #procs{seen = none}} = Listing -> Listing;
                Begun -> scan_some(min(due(Begun), ?AT_ONCE_NS div cost(Begun)), Begun)
            end
    end;
part(#state{procs = #procs{round = #round{scanned = 0}}} = State) ->
    %% No step has run yet.
    step(State);
part(State) ->
    State.

%% The answer while the list is still being built.
nothing_read(#state{procs = #procs{round = Round}}) ->
    Head = unread(Round, erlang:system_info(process_count)),
    Head#{queue_sum => 0, queue_max => 0, queue_nonempty => 0, new => 0, gone => 0, step_us => 0,
          top_reductions => [], top_queues => [], skipped => skipped(now_ns())}.

continue_before_next(State) ->
    case min(due(State), (State#state.procs)#procs.round#round.total) * cost(State) > ?AT_ONCE_NS of
        true ->
            case begin_part(State) of
                #state{procs = #procs{seen = none}} = Listing -> Listing;
                Begun -> pace(Begun)
            end;
        false -> State
    end.

cost(#state{procs = #procs{round = #round{cost_ns = Cost}}}) -> Cost.

%% Number of processes to read in one interval between samples.
due(#state{procs = #procs{round = #round{total = Total} = Round} = Procs, interval_ns = Interval} = State) ->
    Budgeted = quota(Round, 45, Interval, State),
    %% The number due in Ns of a round that takes Seconds.
    Due = fun(Ns, Seconds) -> Total * Ns div (Seconds * ?FIRST_INTERVAL_NS) + 1 end,
    Within = min(Interval, ?FIRST_INTERVAL_NS),
    Max = fun(Ppm) -> Interval * Ppm div (1000000 * cost(State)) end,
    case is_first_round(Procs) of
        true -> max(Budgeted, min(Due(Within, 1), Max(?FIRST_ROUND_PPM)));
        false ->
            Samples = round_samples(State),
            AtOnce = case Procs of #procs{quiet = true} -> ?QUIET_AT_ONCE; _ -> ?READ_AT_ONCE end,
            Parts = max(1, min(Samples, (Total + AtOnce - 1) div AtOnce)),
            max(min(Budgeted, Due(max(Interval, ?FIRST_INTERVAL_NS), Parts)), min(Due(Within, Samples), Max(round_ppm(Procs))))
    end.

is_first_round(#procs{old = Old, old_counters = OldCounters}) -> Old =/= same andalso OldCounters =:= none.

round_ppm(#procs{quiet = true}) -> ?QUIET_PPM;
round_ppm(#procs{quiet = false}) -> ?ROUND_PPM.

round_samples(#state{procs = #procs{quiet = false}}) -> ?ROUND_SAMPLES;
round_samples(#state{began_ns = Began, procs = #procs{round = #round{total = Total}}}) ->
    ByAge = max(?MIN_QUIET_SAMPLES, min(?MAX_QUIET_SAMPLES, (now_ns() - Began) div (?PATIENCE * ?FIRST_INTERVAL_NS))),
    max(ByAge, Total div ?MAX_QUIET_PART).

%% Spreads what is due over most of the time until the next sample; the very first round is read as fast as allowed.
pace(#state{procs = Procs, interval_ns = Interval} = State) ->
    Due = due(State),
    Steps = max(1, Due * cost(State) div ?READ_NS),
    Fastest = ?READ_NS * (1000000 - ?FIRST_ROUND_PPM) div ?FIRST_ROUND_PPM,
    Pause = case is_first_round(Procs) of
                true -> Fastest;
                false -> max(Fastest, Interval * 85 div (100 * Steps) - ?READ_NS)
            end,
    State#state{procs = Procs#procs{left = Due, pause_ms = max(?STEP_PAUSE_NS, Pause) div 1000000}}.

%% Reads a step between samples.
step(#state{procs = #procs{left = Left, round = #round{rest = Rest}} = Procs} = State) when Left =< 0; Rest =:= [] ->
    State#state{procs = Procs#procs{pause_ms = infinity}};
step(#state{procs = #procs{left = Left} = Procs} = State) ->
    Begin = now_ns(),
    Size = min(Left, max(64, ?READ_NS div cost(State))),
    #state{procs = Stepped} = Scanned = scan_some(Size, State#state{deadline_ns = Begin + 2 * ?READ_NS, rested_ns = Begin}),
    Read = Stepped#procs.round#round.scanned - Procs#procs.round#round.scanned,
    Scanned#state{procs = Stepped#procs{left = Left - Read, step_ns = Stepped#procs.step_ns + now_ns() - Begin}}.

scan_some(Count, #state{procs = #procs{round = Round, seen = Seen} = Procs} = State) ->
    {Round1, Seen1, State1} = scan(Round, Count, fun visit/2, Seen, State),
    State1#state{procs = Procs#procs{round = Round1, seen = Seen1}}.

%% Begins the next part, or first starts building a list: then `seen' stays `none'.
begin_part(#state{procs = #procs{round = #round{rest = [], list = List, total = Total, alive = Alive}} = Procs} = State) ->
    case {erlang:system_info(process_count), List} of
        {Count, _} when Count > ?MAX_LIST ->
            case is_fresh(Procs) of
                true -> begin_round(List, Total, State);
                false -> list_beside(procs, State#state{procs = Procs#procs{pause_ms = infinity}})
            end;
        {Alive, [_ | _]} -> begin_round(List, Total, State);
        _ ->
            Pids = erlang:processes(),
            begin_round(Pids, length(Pids), State)
    end;
begin_part(#state{procs = #procs{round = Round} = Procs} = State) ->
    begin_seen(State#state{procs = Procs#procs{round = further_part(Round)}}).

%% Whether the list table can still be used.
is_fresh(#procs{listed_ns = At, quiet = Quiet, round = #round{list = {list_table, _, _}, total = Total}}) ->
    Longer = case Quiet of true -> ?QUIET_LIST_FACTOR; false -> 1 end,
    now_ns() - At < Longer * Total * 1000000000 div ?LISTED_PER_S;
is_fresh(_) -> false.

%% The list table is complete: reading begins at once.
begin_listed(ListTable, Total, #state{procs = Procs} = State) ->
    pace(begin_round(ListTable, Total, State#state{procs = Procs#procs{listed_ns = now_ns()}})).

begin_round(List, Total, #state{procs = #procs{round = Round, counters = Counters, marks = Marks} = Procs} = State) ->
    #round{list = Old} = Round,
    Next = next_round(List, Total, Round),
    OldMarks = lists:reverse(Marks),
    case Counters =/= none andalso List =:= Old of
        true ->
            begin_seen(State#state{procs = Procs#procs{round = Next, marks = [], old = same, old_marks = OldMarks}});
        false ->
            begin_seen(close_lists(Old, State#state{
                procs = Procs#procs{round = Next, counters = atomics:new(max(1, Total), []), marks = [],
                                    old = case Old of {list_table, _, _} -> 1; _ -> Old end, old_list = Old, old_place = 1,
                                    old_counters = Counters, old_marks = OldMarks}}))
    end.

%% Closes the list tables that neither this round nor the one before uses. `processes' may have to restart its round with the new one.
close_lists(Old, #state{procs = #procs{round = #round{list = List}, list_tables = ListTables} = Procs, heaps = Heaps} = State) ->
    Kept = lists:usort([ListTable || {list_table, _, _} = ListTable <- [Old, List, Heaps#round.list]]),
    [close_list(ListTable) || ListTable <- ListTables -- Kept],
    State#state{procs = Procs#procs{list_tables = Kept}}.

begin_seen(#state{procs = Procs, own = Own} = State) ->
    #procs{counters = Counters, marks = Marks, old = Old, old_list = OldList, old_place = OldPlace, old_counters = OldCounters,
           top = Top, active = {Active, _}} = Procs,
    Stride = 1 + Active div ?MAX_RECEIVERS,
    State#state{procs = Procs#procs{seen = #seen{place = next_place(Marks), counters = Counters, old = Old, old_list = OldList,
                                                 old_place = OldPlace, old_counters = OldCounters, own = Own,
                                                 stride = Stride, skip = chance(Stride),
                                                 busy = top(Top), queued = top(Top), hot = top(Top)},
                                    left = 0, pause_ms = infinity, step_ns = 0}}.

end_procs(#state{procs = #procs{round = Round, seen = Scanned} = Procs} = State) ->
    #procs{old = Old, old_place = OldPlace, old_counters = OldCounters, marks = Marks} = Procs,
    Place = next_place(Marks),
    Seen = case Round#round.rest of [] -> rest_gone(Scanned); _ -> Scanned end,
    Now = now_ns(),
    #seen{place = NextPlace, old_place = NextOldPlace} = Seen,
    {Busy, Queued, Watched, Dropped} = tops(Seen, Procs),
    Reported = maps:fold(fun(P, R, M) -> merge(P, R, fun erlang:max/2, M) end, Procs#procs.reported, Dropped),
    {ReportedNow, ReportedBefore} = case Round#round.rest of [] -> {#{}, Reported}; _ -> {Reported, Procs#procs.reported_before} end,
    {_, Chosen} = Seen#seen.chosen,
    Next = Procs#procs{round = end_part(Seen#seen.dead, Round), marks = [{NextPlace - 1, Now} | Marks],
                       most = with_longest_queue(Queued, [P || {P, _, _, _} <- lists:sublist(Busy, ?BUSIEST)]),
                       active = {Seen#seen.active * Round#round.total div max(1, Round#round.scanned), Chosen},
                       old = Seen#seen.old, old_place = NextOldPlace, seen = none, pause_ms = infinity, watched = Watched,
                       reported = ReportedNow, reported_before = ReportedBefore},
    Head = head(Round),
    Value = Head#{queue_sum => Seen#seen.queue_sum, queue_max => Seen#seen.queue_max,
                  queue_nonempty => Seen#seen.queue_nonempty, new => Seen#seen.new, gone => Seen#seen.gone,
                  step_us => Procs#procs.step_ns div 1000,
                  top_reductions => [{id(P), D, Q, S} || {P, D, Q, S} <- Busy],
                  top_queues => [{id(P), Q, D, S} || {P, D, Q, S} <- Queued],
                  skipped => skipped(Now)},
    {case {Old, OldCounters} of
         {same, _} -> Value#{delta_reductions => Seen#seen.delta, since_first_ns => visited_at(Place, Procs),
                             since_last_ns => visited_at(NextPlace - 1, Procs)};
         {_, none} -> Value;
         {_, _} -> Value#{delta_reductions => Seen#seen.delta, since_first_ns => visited_at(OldPlace, Procs),
                          since_last_ns => visited_at(NextOldPlace - 1, Procs)}
     end, State#state{procs = note_origins(Seen, note_tops(Busy, Queued, Next), State)}}.

%% Adds the process with the longest queue, which may wait outside of its main loop while messages arrive.
with_longest_queue(Queued, Most) ->
    case lists:reverse(lists:keysort(3, Queued)) of
        [{Pid, _, Queue, _} | _] when Queue >= ?MIN_QUEUE -> [Pid | lists:delete(Pid, Most)];
        _ -> Most
    end.

skipped(Now) -> [{id(P), (Now - Since) div 1000000} || {P, Since} <- left_out()].

%% The top processes of a part: {by reductions, by queue: [{Pid, Delta, Queue, Status}], processes to watch, those no longer watched}.
%%
%% In a round of several samples, a top process would be seen in only one of them. So top processes are watched, that is read again in
%% each sample, until others are above them; in the very first round, without earlier values, those with the most reductions in
%% total. The reductions seen while watching are reported once, and not again when the round visits the process.
tops(#seen{busy = Busy, queued = Queued, hot = Hot, own = Own}, #procs{round = Round, top = Top} = Procs) ->
    %% A list table is read in one part in the very first round only.
    Whole = Round#round.part =:= 1 andalso Round#round.rest =:= [] andalso is_list(Round#round.list),
    Watched = case Whole of true -> #{}; false -> Procs#procs.watched end,
    Tops = [{P, Base, D, Q} || {D, {P, Q, Base}} <- top_list(Busy)] ++ [{P, Base, D, Q} || {Q, {P, D, Base}} <- top_list(Queued)],
    Reported = maps:merge(Procs#procs.reported_before, Procs#procs.reported),
    New = [{P, Base, unreported(P, Base, D, Reported), Q} || {P, Base, D, Q} <- Tops, not is_map_key(P, Watched)],
    Met = [{P, Base, 0, 0} || {Base, P} <- top_list(Hot), not Whole, not lists:member(P, Own)],
    Known = [{P, Base, 0, 0} || {P, Base} <- maps:to_list(Watched)],
    Read = reread(lists:ukeysort(1, New ++ Known ++ Met), Whole),
    ByDelta = lists:sublist(lists:reverse(lists:keysort(2, [Row || {_, D, _, _, _} = Row <- Read, D > 0])), Top),
    ByQueue = lists:sublist(lists:reverse(lists:keysort(3, [Row || {_, _, Q, _, _} = Row <- Read, Q > 0])), Top),
    %% Those of the first round have no delta yet, so they are watched once more.
    Again = [Row || Row <- Read, lists:keymember(element(1, Row), 1, Met)],
    Rows = fun(List) -> [{P, D, Q, S} || {P, D, Q, S, _} <- List] end,
    Reductions = fun(List) -> maps:from_list([{P, R} || {P, _, _, _, R} <- List, not Whole]) end,
    Stay = Reductions(ByDelta ++ ByQueue ++ Again),
    {Rows(ByDelta), Rows(ByQueue), Stay, maps:without(maps:keys(Stay), Reductions([R || R <- Read, is_map_key(element(1, R), Watched)]))}.

%% A process's reductions since the round's last visit, without those already reported while it was watched.
unreported(Pid, Now, Delta, Reported) ->
    case Reported of
        #{Pid := Then} when Now - Then < Delta -> Now - Then;
        _ -> Delta
    end.

%% [{Pid, Delta, Queue, Status, Reductions}]; if the round was read in one part, only the status is new.
reread(List, Whole) ->
    Ask = fun(Pid, _) -> process_info(Pid, [status, reductions, message_queue_len]) end,
    [case Reading of
         [{_, S}, _, _] when Whole -> {P, D, Q, S, Base};
         [{_, S}, {_, R}, {_, Queue}] -> {P, D + R - Base, Queue, S, R};
         hung -> {P, D, Q, running, Base};
         undefined -> {P, D, Q, exiting, Base}
     end || {{P, Base, D, Q}, Reading} <- lists:zip(List, read_all(Ask, [P || {P, _, _, _} <- List]))].

%% The position at which the next part begins.
next_place([{Visited, _} | _]) -> Visited + 1;
next_place([]) -> 1.

%% When the round before visited a position.
visited_at(Place, #procs{old_marks = Marks}) ->
    case [At || {Visited, At} <- Marks, Visited >= Place] of
        [At | _] -> At;
        [] -> element(2, lists:last(Marks))
    end.

%% Visits some processes of the list. Neither item makes a process run: both are read from outside, unless it is running.
%% With the list of the round before, a process without new reductions or messages is `same'; in the very first round, one
%% with no more reductions than the top ones and without messages.
visit(Pids, #seen{old = same, counters = Counters, place = Place} = Seen) ->
    Readings = read_all(fun(Pid, Index) ->
                            case process_info(Pid, [reductions, message_queue_len]) of
                                [{_, Reductions}, {_, Queue}] ->
                                    case atomics:get(Counters, Place + Index - 1) of
                                        Reductions when Queue =:= 0 -> same;
                                        _ -> [Reductions | Queue]
                                    end;
                                undefined -> undefined
                            end
                        end, Pids),
    revisit(Pids, Readings, Place, Seen);
visit(Pids, #seen{old = Old, place = Place, old_place = OldPlace, counters = Counters} = Seen) ->
    Lowest = case Seen of #seen{old_counters = none, hot = {0, LowestHot, _}} -> LowestHot; _ -> -1 end,
    Readings = read_all(fun(Pid, Index) ->
                            case process_info(Pid, [reductions, message_queue_len]) of
                                [{_, Reductions}, {_, 0}] when Reductions =< Lowest ->
                                    atomics:put(Counters, Place + Index - 1, Reductions),
                                    same;
                                [{_, Reductions}, {_, Queue}] -> [Reductions | Queue];
                                undefined -> undefined
                            end
                        end, Pids),
    compare(Pids, Readings, Place, Old, OldPlace, Seen).

revisit([_ | Pids], [same | Readings], Place, Seen) ->
    revisit(Pids, Readings, Place + 1, Seen);
revisit([Pid | Pids], [Reading | Readings], Place, #seen{counters = Counters} = Seen) ->
    revisit(Pids, Readings, Place + 1, visited(Pid, Reading, Place, atomics:get(Counters, Place), Seen));
revisit([], [], Place, Seen) ->
    Seen#seen{place = Place}.

%% A new list. Processes keep their slot in the VM's table while they live, and erlang:processes/0 lists by slot
%% (erl_ptab.c), so survivors are in the same order in the old list: one walk along both finds each process's counter.
compare([Pid | Pids], [Reading | Readings], Place, [Pid | Old], OldPlace, Seen) ->
    Before = atomics:get(Seen#seen.old_counters, OldPlace),
    compare(Pids, Readings, Place + 1, Old, OldPlace + 1, visited(Pid, Reading, Place, Before, Seen));
compare([Pid | Pids] = All, [Reading | Rest] = Readings, Place, [Other | OldRest] = Old, OldPlace, Seen) ->
    %% Either Other has ended, or it comes later in the list and Pid is new.
    case has_ended(Other, OldRest, Pid, Pids) of
        false -> compare(Pids, Rest, Place + 1, Old, OldPlace, visited(Pid, Reading, Place, new, Seen));
        true -> compare(All, Readings, Place, OldRest, OldPlace + 1, gone(OldPlace, Seen))
    end;
compare([_ | _] = Pids, Readings, Place, Row, OldPlace, Seen) when is_integer(Row) ->
    compare(Pids, Readings, Place, turn(Row, Seen#seen.old_list), OldPlace, Seen);
compare([_ | Pids], [same | Readings], Place, [], OldPlace, Seen) ->
    compare(Pids, Readings, Place + 1, [], OldPlace, Seen);
compare([Pid | Pids], [Reading | Readings], Place, [], OldPlace, Seen) ->
    compare(Pids, Readings, Place + 1, [], OldPlace, visited(Pid, Reading, Place, new, Seen));
compare([], [], Place, Old, OldPlace, Seen) ->
    Seen#seen{place = Place, old = Old, old_place = OldPlace}.

%% At the end of a round: the rest of the old list is not in the new one.
rest_gone(#seen{old = [_ | Old], old_place = OldPlace} = Seen) ->
    rest_gone((gone(OldPlace, Seen))#seen{old = Old, old_place = OldPlace + 1});
rest_gone(#seen{old = Row, old_list = List} = Seen) when is_integer(Row) ->
    rest_gone(Seen#seen{old = turn(Row, List)});
rest_gone(Seen) -> Seen.

%% Whether Other, which was at the position of Pid, has ended. The next few elements of both lists mostly show it. If not, it is
%% checked: alive now means alive when the list was built.
has_ended(Other, OldRest, Pid, Pids) ->
    case {is_near(Other, Pids, 16), is_near(Pid, OldRest, 16)} of
        {true, _} -> false;
        {false, true} -> true;
        {false, false} -> read_all(fun(P, _) -> is_process_alive(P) end, [Other]) =/= [true]
    end.

is_near(Pid, [Pid | _], _) -> true;
is_near(Pid, [_ | Rest], Left) when Left > 0 -> is_near(Pid, Rest, Left - 1);
is_near(_, _, _) -> false.

visited(Pid, [Now | Queue], Place, Before, #seen{counters = Counters} = Seen) ->
    atomics:put(Counters, Place, Now),
    case Before of
        Now when Queue =:= 0 -> Seen;
        new -> newcomer(Pid, Now, Queue, Seen);
        _ -> note(Pid, Now, Before, Queue, Seen)
    end;
visited(_, Nothing, Place, Before, #seen{counters = Counters} = Seen) ->
    atomics:put(Counters, Place, -1),
    ended(Nothing, Before, Seen).

newcomer(Pid, Now, Queue, #seen{old_counters = none, hot = Hot} = Seen) ->
    note(Pid, Now, -1, Queue, Seen#seen{hot = top_add(Now, Pid, Hot)});
newcomer(Pid, Now, Queue, #seen{new = New, fresh = Fresh} = Seen) when New < 20 ->
    note(Pid, Now, 0, Queue, Seen#seen{new = New + 1, fresh = [Pid | Fresh]});
newcomer(Pid, Now, Queue, #seen{new = New} = Seen) -> note(Pid, Now, 0, Queue, Seen#seen{new = New + 1}).

%% No answer. A process without a counter was never counted as present, so it is not counted as gone.
ended(hung, _, Seen) -> Seen;
ended(undefined, Before, #seen{dead = Dead} = Seen) when Before =:= -1; Before =:= new -> Seen#seen{dead = Dead + 1};
ended(undefined, _, #seen{dead = Dead, gone = Gone} = Seen) -> Seen#seen{dead = Dead + 1, gone = Gone + 1}.

gone(OldPlace, #seen{old_counters = Counters, gone = Gone} = Seen) ->
    case Counters =/= none andalso atomics:get(Counters, OldPlace) of
        Known when is_integer(Known), Known >= 0 -> Seen#seen{gone = Gone + 1};
        _ -> Seen
    end.

note(Pid, Now, Before, Queue, #seen{own = Own} = Seen) ->
    Delta = case Before of -1 -> 0; _ -> Now - Before end,
    case lists:member(Pid, Own) of
        true -> Seen;
        false ->
            queue(Pid, Delta, Queue, Now, did(Pid, Delta, Queue, Now, Seen))
    end.

did(_, 0, _, _, Seen) -> Seen;
did(Pid, Delta, Queue, Now, #seen{active = Active, skip = Skip, chosen = {Count, Pids}} = Seen) ->
    Done = Seen#seen{delta = Seen#seen.delta + Delta, busy = top_add(Delta, {Pid, Queue, Now}, Seen#seen.busy), active = Active + 1},
    case Skip of
        1 when Count < ?MAX_RECEIVERS -> Done#seen{skip = chance(2 * Seen#seen.stride - 1), chosen = {Count + 1, [Pid | Pids]}};
        _ -> Done#seen{skip = max(1, Skip - 1)}
    end.

queue(_, _, 0, _, Seen) -> Seen;
queue(Pid, Delta, Queue, Now, Seen) ->
    Seen#seen{queue_sum = Seen#seen.queue_sum + Queue, queue_max = max(Queue, Seen#seen.queue_max),
              queue_nonempty = Seen#seen.queue_nonempty + 1,
              queued = top_add(Queue, {Pid, Delta, Now}, Seen#seen.queued)}.

%% Stores the top processes for the next `processes'.
note_tops(Busy, Queued, #procs{busy = AllBusy, queued = AllQueued} = Procs) ->
    Procs#procs{busy = lists:foldl(fun({P, D, _, _}, M) -> merge(P, D, fun erlang:'+'/2, M) end, AllBusy, Busy),
                queued = lists:foldl(fun({P, _, Q, _}, M) -> merge(P, Q, fun erlang:max/2, M) end, AllQueued, Queued)}.

%% Merges into a map of at most 500 keys.
merge(Key, Value, Join, Map) ->
    case Map of
        #{Key := Before} -> Map#{Key := Join(Before, Value)};
        _ when map_size(Map) < 500 -> Map#{Key => Value};
        _ -> Map
    end.
