%% Scans of all processes, tables or ports, in parts that fit into the budget, and in chunks between which others run.
%% Long lists are built by another process, so that the collector's garbage collections never copy them.

%% Maximum number of processes (tables, ports) whose details are read between two checks of the clock.
-define(DETAILS, 8).
%% Minimum size of a part; without it, a round would not end with a tiny budget.
-define(MIN_PART, 512).

further_part(#round{part = Part} = Round) -> Round#round{part = Part + 1, scanned = 0}.

next_round(All, Total, #round{number = Number} = Round) ->
    Rest = case All of {list_table, _, _} -> 1; _ -> All end,
    Round#round{number = Number + 1, part = 1, rest = Rest, list = All, total = Total, scanned = 0, dead = 0}.

%% Ends a part, of which Dead did not answer.
end_part(Dead, #round{total = Total, dead = Before, rest = Rest} = Round) ->
    All = Before + Dead,
    case Rest of
        [] -> Round#round{dead = All, alive = Total - All};
        _ -> Round#round{dead = All}
    end.

%% How many objects of a kind may be read now: `Share' percent of the budget for the time since they were last read.
quota(#round{cost_ns = Cost}, Share, IntervalNs, #state{budget_ppm = Budget}) ->
    max(?MIN_PART, IntervalNs * Budget * Share div (100 * 1000000 * Cost)).

%% Scans a part by reading and adding up each element: {Round, Acc, State}. It is never larger than Max.
scan_each(Part, Share, Max, Read, Add, Acc, #state{interval_ns = Interval} = State) ->
    Now = now_ns(),
    Since = case Part#round.read_ns of none -> Interval; At -> Now - At end,
    Chunk = fun(Elements, A) -> add_all(Elements, read_all(Read, Elements), Add, A) end,
    scan(Part#round{read_ns = Now}, min(Max, quota(Part, Share, Since, State)), Chunk, Acc, State).

add_all([Element | Elements], [Result | Results], Add, Acc) -> add_all(Elements, Results, Add, Add(Element, Result, Acc));
add_all([], [], _, Acc) -> Acc.

%% The common keys of all answers of scans.
head(#round{total = Total, scanned = Scanned, number = Number, part = Part, rest = Rest}) ->
    #{total => Total, scanned => Scanned, round => Number, part => Part, last => Rest =:= []}.

%% The same while there is no list yet; unknown numbers are absent.
unread(#round{number = Number}, Count) -> #{total => Count, scanned => 0, round => Number, part => 0, last => false}.

%% Reads a part, in chunks of at most some milliseconds. The cost per element is smoothed, and a slow chunk (because the
%% collector had to wait) has little weight, so that cost_ns approximates CPU time. A part ends with its quota or its time
%% limit; the rest is the next part.
scan(Round, Quota, Chunk, Acc, State) ->
    scan(Round, Quota, Chunk, Acc, State, now_ns()).

scan(#round{rest = Rest, scanned = Scanned, size = Size, cost_ns = Cost} = Round, Left, Chunk, Acc, State, Begin) ->
    {Elements, Count, Rest1} = take(min(Left, Size), Rest, Round#round.list),
    Acc1 = Chunk(Elements, Acc),
    End = now_ns(),
    Each = min((End - Begin) div max(1, Count), 4 * Cost),
    Cost1 = max(20, (Cost * (4096 - Count) + Each * Count) div 4096),
    Size1 = if
                End - Begin > 5000000 -> max(8, Size div 2);
                End - Begin < 2000000 -> min(?CHUNK, Size * 2);
                true -> Size
            end,
    Round1 = Round#round{rest = Rest1, scanned = Scanned + Count, size = Size1, cost_ns = Cost1},
    State1 = State#state{scan_ns = State#state.scan_ns + Cost1 * Count},
    if
        Rest1 =:= []; Left =< Count; End > State#state.deadline_ns -> {Round1, Acc1, State1};
        true -> scan(Round1, Left - Count, Chunk, Acc1, rest(State1), now_ns())
    end.

%% The next part of the tables or ports, or `not_yet' while a long list is being built: {Part, State}.
next_part(Kind, #round{rest = [], list = Old, alive = Alive, total = Total} = Round, #state{listed = Listed} = State) ->
    {List, Count} = list_of(Kind),
    case maps:take(Kind, Listed) of
        {{ListTable, Found}, Others} ->
            close_list(Old),
            {next_round(ListTable, Found, Round), State#state{listed = Others}};
        error when Count > ?MAX_LIST ->
            {not_yet, list_beside(Kind, State)};
        error when Count =:= Alive, is_list(Old) ->
            {next_round(Old, Total, Round), State};
        error ->
            close_list(Old),
            All = List(),
            {next_round(All, length(All), Round), State}
    end;
next_part(_, Round, State) -> {further_part(Round), State}.

%% At the end of a round with a long list, starts building the list for the next one, so that it is ready when requested.
list_before_next(Kind, #round{rest = []}, State) ->
    case list_of(Kind) of
        {_, Count} when Count > ?MAX_LIST -> list_beside(Kind, State);
        _ -> State
    end;
list_before_next(_, _, State) -> State.

%% The function that lists all objects of a kind, and their number by the VM's count.
list_of(procs) -> {fun erlang:processes/0, erlang:system_info(process_count)};
list_of(tables) -> {fun ets:all/0, erlang:system_info(ets_count)};
list_of(ports) -> {fun erlang:ports/0, erlang:system_info(port_count)}.

%% Schedules building a list; {listed, ...} delivers it (see listed/4). Building waits until the current sample is complete, since
%% items that all schedulers must answer would wait for it. Lists are built one at a time, since two would wait for each other.
list_beside(Kind, #state{to_list = Later} = State) ->
    case is_listing(Kind, State) of
        true -> State;
        false -> State#state{to_list = Later ++ [Kind]}
    end.

is_listing(Kind, #state{listing = {Kind, _}}) -> true;
is_listing(Kind, #state{to_list = Later}) -> lists:member(Kind, Later).

start_listing(#state{listing = none, to_list = [Kind | Later]} = State) ->
    {List, Count} = list_of(Kind),
    State#state{listing = {Kind, lister(List, Count)}, to_list = Later};
start_listing(State) -> State.

%% A list is complete. That of processes is read at once, the others when they are requested.
listed(Lister, Table, Total, #state{listing = {Kind, Lister}, listed = Listed} = State) ->
    ListTable = {list_table, Table, Lister},
    Next = start_listing(State#state{listing = none}),
    case Kind of
        procs -> begin_listed(ListTable, Total, Next);
        _ -> Next#state{listed = Listed#{Kind => {ListTable, Total}}}
    end.

%% Builds a list table and keeps it until it is closed. At priority normal, since building the list and freeing the table's memory
%% take long without a pause, and others have to run in between.
lister(List, Count) ->
    Collector = self(),
    spawn_opt(fun() ->
                  Table = ets:new(?MODULE, [public]),
                  Lister = self(),
                  Write = fun() ->
                              All = List(),
                              %% The table may be gone before the exit signal of its owner arrives, and nothing may be printed.
                              catch write_rows(All, 1, Table),
                              Lister ! {written, length(All)}
                          end,
                  %% With a heap that holds everything, no garbage collection copies it.
                  spawn_opt(Write, [link, {priority, normal}, {min_heap_size, 8 * Count}]),
                  receive {written, Total} -> Collector ! {listed, Lister, Table, Total} end,
                  receive close -> ok end
              end, [link, {priority, normal}]).

write_rows(All, Row, Table) ->
    {Taken, _, Rest} = take(?CHUNK, All, All),
    Tail = case Rest of [] -> []; _ -> Row + 1 end,
    ets:insert(Table, {Row, Taken ++ Tail}),
    Rest =:= [] orelse write_rows(Rest, Row + 1, Table).

close_list({list_table, _, Lister}) -> Lister ! close;
close_list(_) -> ok.

%% {the first N, their number, the rest}
take(N, Rest, List) -> take(N, Rest, List, [], 0).

take(N, [Element | Rest], List, Taken, Count) when Count < N -> take(N, Rest, List, [Element | Taken], Count + 1);
take(N, Row, List, Taken, Count) when is_integer(Row), Count < N -> take(N, turn(Row, List), List, Taken, Count);
take(_, Rest, _, Taken, Count) -> {lists:reverse(Taken), Count, Rest}.

%% A row of a list table: a list with the number of the next row as its tail, or `[]' at the end. If the table was closed, because a
%% newer one has replaced it, the list ends here.
turn(Row, {list_table, Table, _}) ->
    case catch ets:lookup(Table, Row) of [{_, Pids}] -> Pids; _ -> [] end.

%% Details of the top elements, within the time limit: [{Element, Map}] of those for which Fun, in the reader, returns a map.
details(Fun, List, #state{deadline_ns = Deadline}) -> details(Fun, List, Deadline + ?SCAN_NS, []).

details(_, [], _, Found) -> lists:append(lists:reverse(Found));
details(Fun, List, Until, Found) ->
    {Elements, _, Rest} = take(?DETAILS, List, List),
    Maps = [{E, Map} || {E, #{} = Map} <- lists:zip(Elements, read_all(fun(E, _) -> Fun(E) end, Elements))],
    details(Fun, case now_ns() < Until of true -> Rest; false -> [] end, Until, [Maps | Found]).

%% The highest N, lowest first: {free places, lowest key, [{Key, Value}]}.
top(N) -> {N, 0, []}.

top_add(Key, _, {0, Lowest, _} = Top) when Key =< Lowest -> Top;
top_add(Key, Value, {0, _, [_ | List]}) ->
    [{Lowest, _} | _] = New = insert({Key, Value}, List),
    {0, Lowest, New};
top_add(Key, Value, {Left, _, List}) ->
    [{Lowest, _} | _] = New = insert({Key, Value}, List),
    {Left - 1, Lowest, New}.

insert({Key, _} = New, [{Lower, _} = First | Rest]) when Key > Lower -> [First | insert(New, Rest)];
insert(New, List) -> [New | List].

top_list({_, _, List}) -> lists:reverse(List).
