%% Scans of all processes, tables or ports, in parts that fit into the budget, and in chunks between which others run.
%% Long lists are made by a process beside the collector, so that its garbage collector never has to move them.

%% How many processes (tables, ports) are asked for details at most between two looks at the clock.
-define(DETAILS, 8).
%% A part is never planned smaller than this, else a round would not end with a tiny budget.
-define(MIN_PART, 512).

further_part(#round{part = Part} = Round) -> Round#round{part = Part + 1, scanned = 0}.

next_round(All, Total, #round{number = Number} = Round) ->
    Rest = case All of {book, _, _} -> 1; _ -> All end,
    Round#round{number = Number + 1, part = 1, rest = Rest, list = All, total = Total, scanned = 0, dead = 0}.

%% After a part: how many of it did not answer.
end_part(Dead, #round{total = Total, dead = Before, rest = Rest} = Round) ->
    All = Before + Dead,
    case Rest of
        [] -> Round#round{dead = All, alive = Total - All};
        _ -> Round#round{dead = All}
    end.

%% How many of a kind may be read now: `Share' percent of the budget for the time since they were read last.
quota(#round{cost_ns = Cost}, Share, IntervalNs, #state{budget_ppm = Budget}) ->
    max(?MIN_PART, IntervalNs * Budget * Share div (100 * 1000000 * Cost)).

%% A part of a kind that has no more to it than reading each element and adding it up: {Round, Acc, State}. It is never larger than Most.
scan_each(Part, Share, Most, Read, Add, Acc, #state{interval_ns = Interval} = State) ->
    Now = now_ns(),
    Since = case Part#round.read_ns of none -> Interval; At -> Now - At end,
    Chunk = fun(Elements, A) -> add_all(Elements, read_all(Read, Elements), Add, A) end,
    scan(Part#round{read_ns = Now}, min(Most, quota(Part, Share, Since, State)), Chunk, Acc, State).

add_all([Element | Elements], [Result | Results], Add, Acc) -> add_all(Elements, Results, Add, Add(Element, Result, Acc));
add_all([], [], _, Acc) -> Acc.

%% What every answer to a scan begins with.
head(#round{total = Total, scanned = Scanned, number = Number, part = Part, rest = Rest}) ->
    #{total => Total, scanned => Scanned, round => Number, part => Part, last => Rest =:= []}.

%% The same where there is no list to read from yet: nothing that is not known is told as a number.
unread(#round{number = Number}, Count) -> #{total => Count, scanned => 0, round => Number, part => 0, last => false}.

%% Reads a part, in chunks of some milliseconds at most. The cost of one is smoothed, and a slow chunk (because the
%% collector had to wait) counts little, so that cost_ns comes near to CPU time. A part ends when its quota is done or its
%% time is over; what is left is the next part.
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

%% The next part of the tables or ports, or `not_yet' while a list of very many is being made: {Part, State}.
next_part(Kind, #round{rest = [], list = Old, alive = Alive, total = Total} = Round, #state{listed = Listed} = State) ->
    {List, Count} = list_of(Kind),
    case maps:take(Kind, Listed) of
        {{Book, Found}, Others} ->
            close_book(Old),
            {next_round(Book, Found, Round), State#state{listed = Others}};
        error when Count > ?BOOK ->
            {not_yet, list_beside(Kind, State)};
        error when Count =:= Alive, is_list(Old) ->
            {next_round(Old, Total, Round), State};
        error ->
            close_book(Old),
            All = List(),
            {next_round(All, length(All), Round), State}
    end;
next_part(_, Round, State) -> {further_part(Round), State}.

%% At the end of a round of very many, has the list for the next one made, so that it is there when that is asked for.
list_before_next(Kind, #round{rest = []}, State) ->
    case list_of(Kind) of
        {_, Count} when Count > ?BOOK -> list_beside(Kind, State);
        _ -> State
    end;
list_before_next(_, _, State) -> State.

%% How all of a kind are listed, and how many the VM says that there are.
list_of(procs) -> {fun erlang:processes/0, erlang:system_info(process_count)};
list_of(tables) -> {fun ets:all/0, erlang:system_info(ets_count)};
list_of(ports) -> {fun erlang:ports/0, erlang:system_info(port_count)}.

%% Has a list made that {listed, ...} will bring (see listed/4): not before the sample that is being read is over, since items
%% that all schedulers must answer would wait for it, and one at a time, since two would wait for each other.
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

%% A list is there. That of processes is read at once, the others when they are asked for.
listed(Lister, Table, Total, #state{listing = {Kind, Lister}, listed = Listed} = State) ->
    Book = {book, Table, Lister},
    Next = start_listing(State#state{listing = none}),
    case Kind of
        procs -> begin_book(Book, Total, Next);
        _ -> Next#state{listed = Listed#{Kind => {Book, Total}}}
    end.

%% Has a list made in a book, and keeps that until it is closed. At priority normal: making the list goes without a pause, as
%% does freeing the book's memory, and others are to come in between.
lister(List, Count) ->
    Collector = self(),
    spawn_opt(fun() ->
                  Table = ets:new(?MODULE, [public]),
                  Lister = self(),
                  Write = fun() ->
                              All = List(),
                              %% The table is gone before this process hears that its owner has ended, and nothing may be printed.
                              catch write_book(All, 1, Table),
                              Lister ! {written, length(All)}
                          end,
                  %% With a heap that takes all of it, nothing is ever moved.
                  spawn_opt(Write, [link, {priority, normal}, {min_heap_size, 8 * Count}]),
                  receive {written, Total} -> Collector ! {listed, Lister, Table, Total} end,
                  receive close -> ok end
              end, [link, {priority, normal}]).

write_book(All, Row, Table) ->
    {Taken, _, Rest} = take(?CHUNK, All, All),
    Tail = case Rest of [] -> []; _ -> Row + 1 end,
    ets:insert(Table, {Row, Taken ++ Tail}),
    Rest =:= [] orelse write_book(Rest, Row + 1, Table).

close_book({book, _, Lister}) -> Lister ! close;
close_book(_) -> ok.

%% {the first N, how many they are, the rest}
take(N, Rest, List) -> take(N, Rest, List, [], 0).

take(N, [Element | Rest], List, Taken, Count) when Count < N -> take(N, Rest, List, [Element | Taken], Count + 1);
take(N, Row, List, Taken, Count) when is_integer(Row), Count < N -> take(N, turn(Row, List), List, Taken, Count);
take(_, Rest, _, Taken, Count) -> {lists:reverse(Taken), Count, Rest}.

%% A row of a book: a list with the number of the next row as its tail, or `[]' at the end. When the book is there no more,
%% because a newer one has taken its place, the list is at its end.
turn(Row, {book, Table, _}) ->
    case catch ets:lookup(Table, Row) of [{_, Pids}] -> Pids; _ -> [] end.

%% Details of the top ones, as long as there is time: [{Element, Map}] of those for which Fun, in the reader, gives a map.
details(Fun, List, #state{deadline_ns = Deadline}) -> details(Fun, List, Deadline + ?SCAN_NS, []).

details(_, [], _, Found) -> lists:append(lists:reverse(Found));
details(Fun, List, Until, Found) ->
    {Elements, _, Rest} = take(?DETAILS, List, List),
    Maps = [{E, Map} || {E, #{} = Map} <- lists:zip(Elements, read_all(fun(E, _) -> Fun(E) end, Elements))],
    details(Fun, case now_ns() < Until of true -> Rest; false -> [] end, Until, [Maps | Found]).

%% The highest N, lowest first: {how many more fit, the lowest key, [{Key, Value}]}.
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
