%% `locks': how often each lock was contended and for how long, on an emulator with lock counting (-emu_type lcnt).
%% Such an emulator has one set of counters and one mask of counted categories. So one client counts at a time, whatever its
%% version, and a process without links restores the mask.

%% Minimum, maximum and default period of counting.
-define(MIN_COUNTED_MS, 100).
-define(MAX_COUNTED_MS, 600000).
-define(COUNTED_MS, 5000).
%% There is one set of counters and one mask, so the counting process has this registered name, in every version.
-define(COUNTS_LOCKS, beamtune_counts_locks).
%% How long the agent waits for the mask to be restored before its module is purged; and a collector after its time limit.
-define(MASK_MS, 5000).
-define(MASK_LATE_MS, 1000).
%% The counts of more locks are added up at priority normal: this many take some 10 ms.
-define(LOCKS_AT_ONCE, 5000).
%% Words of the counts of a lock, and of each place in the source where it was taken: one to five places, or one for a lock that was
%% never taken. Then the approximate garbage of adding up a lock.
-define(WORDS_OF_LOCK, 7).
-define(WORDS_OF_PLACE, 48).
-define(GARBAGE_OF_LOCK, 16).
%% When it builds the counts, the VM reserves space for large integers, 118 words for a place. The unused part is address space
%% only. Words reserved for a lock, and for a process lock, most of which are idle; then the words used in the end.
-define(LOCK_ROOM, 400).
-define(PROCESS_LOCK_ROOM, 200).
-define(LOCK_WORDS, 150).
-define(PROCESS_LOCK_WORDS, 80).
%% Memory that the VM needs for each counted lock. With more processes than PROCESSES_PUT_BACK, `process' is not restored in the mask.
-define(COUNTED_LOCK_BYTES, 1000).
-define(PROCESSES_PUT_BACK, 8000).
%% erl_process_lock.h: main, message queue, timers, status, trace.
-define(LOCKS_OF_PROCESS, 5).
%% Locks of a port, a socket, a table; additional locks of a table with write_concurrency (initially, with `auto'); locks of
%% a node, and of the VM itself.
-define(LOCKS_OF_PORT, 3).
-define(LOCKS_OF_SOCKET, 2).
-define(LOCKS_OF_TABLE, 2).
-define(SLOTS_OF_TABLE, 64).
-define(LOCKS_OF_NODE, 3).
-define(LOCKS_OF_VM, 1000).
-define(LOCKS_OF_SCHEDULER, 10).
%% Locks shared by all processes, pix_lock.
-define(LOCKS_FOR_PROCESSES, 1024).
%% With more tables, this many are a sample of all.
-define(SAMPLED_TABLES_FOR_LOCKS, 10000).
%% Places in the source, of all classes: as many as fit into the rows. Cells of each: locks, tries, collisions, microseconds, waits, histogram.
-define(MAX_PLACES, 4000).
-define(BINS, 30).
-define(CELLS, (5 + ?BINS)).
-define(MAX_LOCK_ROWS, 5000).
%% Share of the rows for single locks, in permille; the rest is for the sums of all other locks of the same names.
-define(SINGLES_PERMILLE, 800).

%% The emulator's term, in all releases from 23 to 29 (erl_bif_info.c):
%%
%% [{duration, {S, Ns}}, {locks, [{Class, Id, Kind, [{{File, Line}, {Tries, Collisions, {S, Ns, Waits}}, Histogram}]}]}]
locks(Top, Params, State) ->
    limit_ms({locks, Params}) > counted_ms(Params) orelse error(limit_ms_is_not_above_for_ms),
    Until = until(locks, Params),
    Categories = categories(Params),
    case catch erlang:system_info(lock_counting) of
        true ->
            Look = fun() -> {erts_debug:lcnt_control(copy_save), expected_locks(Categories, erts_debug:lcnt_control(mask))} end,
            case run_isolated(Look, Until, [{priority, high}, max_words(?WORKER_HEAP_WORDS)]) of
                {ok, {true, Expected}} -> #{told => copy_save, estimate => Expected};
                {ok, {false, Expected}} -> locks_or_cost(Top, Categories, Expected, Params, Until, State);
                late -> #{told => no_answer};
                Why -> error({not_estimated, Why})
            end;
        _ -> #{told => not_lcnt}
    end.

counted_ms(Params) -> bounded(for_ms, Params, ?MIN_COUNTED_MS, ?COUNTED_MS, ?MAX_COUNTED_MS).

%% By default all but `process', which may be very many, and `debug'.
categories(#{categories := Asked}) when is_list(Asked) ->
    case [C || C <- all_categories(), lists:member(bin(C), Asked)] of
        [] -> error(no_such_category);
        Known -> Known
    end;
categories(_) -> all_categories() -- [debug, process].

all_categories() -> [allocator, db, debug, distribution, generic, io, process, scheduler].

%% Estimates the cost of reading the counts. The number of locks is unknown in advance, so it is estimated from the objects that have locks.
expected_locks(Categories, Mask) ->
    Processes = erlang:system_info(process_count),
    Tables = erlang:system_info(ets_count),
    OfProcesses = case lists:member(process, Categories) of true -> ?LOCKS_OF_PROCESS * Processes; false -> 0 end,
    Others = ?LOCKS_OF_VM + ?LOCKS_OF_SCHEDULER * erlang:system_info(schedulers)
        + lists:sum([locks_of(Category) || Category <- Categories]),
    Word = erlang:system_info(wordsize),
    Cells = ?MAX_PLACES * ?CELLS,
    New = case lists:member(process, Mask) of true -> 0; false -> OfProcesses * ?COUNTED_LOCK_BYTES end,
    Expected = #{locks => OfProcesses + Others, processes => Processes, tables => Tables,
                 bytes => New + (OfProcesses * ?PROCESS_LOCK_WORDS + Others * ?LOCK_WORDS + Cells) * Word,
                 new_bytes => New,
                 reserved_bytes => (OfProcesses * ?PROCESS_LOCK_ROOM + Others * ?LOCK_ROOM + Cells) * Word},
    case available_bytes() of
        unknown -> Expected;
        Available -> Expected#{available_bytes => Available}
    end.

locks_of(io) ->
    ?LOCKS_OF_PORT * erlang:system_info(port_count) + ?LOCKS_OF_SOCKET * maps:get(num_sockets, sockets(), 0);
locks_of(db) ->
    Tables = ets:all(),
    Looked = lists:sublist(Tables, ?SAMPLED_TABLES_FOR_LOCKS),
    Fine = length([T || T <- Looked, Finely <- [ets:info(T, write_concurrency)], Finely =/= false, Finely =/= undefined]),
    Count = length(Tables),
    ?LOCKS_OF_TABLE * Count + ?SLOTS_OF_TABLE * Fine * Count div max(1, length(Looked));
locks_of(distribution) -> ?LOCKS_OF_NODE * length(nodes(known));
locks_of(process) -> ?LOCKS_FOR_PROCESSES;
locks_of(_) -> 0.

%% Memory available in the host and the VM's control groups, in bytes. A VM whose allocation fails dies, and one that exceeds the limit of
%% its group is killed.
available_bytes() ->
    Host = case number_after(<<"MemAvailable:">>, <<"/proc/meminfo">>) of
               unknown -> [];
               KiB -> [1024 * KiB]
           end,
    Groups = case prim_file:read_file(<<"/proc/self/cgroup">>) of
                 {ok, Text} -> lists:append([group_left(Line) || Line <- binary:split(Text, <<"\n">>, [global, trim_all])]);
                 _ -> []
             end,
    %% Numbers compare less than atoms.
    lists:min([unknown | Host ++ Groups]).

%% NUMBER:CONTROLLERS:PATH, where PATH may contain colons. If the mount shows a container's own group only, just that one is found.
group_left(Line) ->
    [_, Group] = binary:split(Line, <<":">>),
    [Controllers, Path] = binary:split(Group, <<":">>),
    case lists:member(<<"memory">>, binary:split(Controllers, <<",">>, [global])) of
        true ->
            folders_left(folders(<<"/sys/fs/cgroup/memory">>, Path), <<"/memory.limit_in_bytes">>, <<"/memory.usage_in_bytes">>,
                         <<"total_inactive_file">>);
        false when Controllers =:= <<>> ->
            folders_left(folders(<<"/sys/fs/cgroup">>, Path), <<"/memory.max">>, <<"/memory.current">>, <<"inactive_file">>);
        false -> []
    end.

%% The group's directory and all above it. For a group outside of the visible ones, only the mount.
folders(Mount, Path) ->
    Parts = binary:split(Path, <<"/">>, [global, trim_all]),
    Below = case lists:member(<<"..">>, Parts) of true -> []; false -> Parts end,
    lists:foldl(fun(Part, [Folder | _] = Folders) -> [<<Folder/binary, "/", Part/binary>> | Folders] end, [Mount], Below).

%% Inactive file pages count as available, since the kernel reclaims them first.
folders_left(Folders, Limit, Usage, Files) ->
    [max(0, Max - max(0, Used - Inactive))
     || Folder <- Folders,
        Max <- [number_after(<<>>, <<Folder/binary, Limit/binary>>)], is_integer(Max),
        Used <- [number_after(<<>>, <<Folder/binary, Usage/binary>>)], is_integer(Used),
        Inactive <- [case number_after(Files, <<Folder/binary, "/memory.stat">>) of unknown -> 0; Bytes -> Bytes end]].

%% The number in the line that begins with that word; without a word, the number that is the whole file.
number_after(Word, Path) ->
    case prim_file:read_file(Path) of
        {ok, Text} ->
            Lines = [string:lexemes(Line, " ") || Line <- binary:split(Text, <<"\n">>, [global, trim_all])],
            Found = [Number || [Key, Number | _] <- Lines, Key =:= Word] ++ [Number || Word =:= <<>>, [Number] <- Lines],
            try binary_to_integer(hd(Found)) catch error:badarg -> unknown end;
        _ -> unknown
    end.

locks_or_cost(_, _, Expected, #{estimate := true}, _, _) -> #{told => ok, estimate => Expected};
locks_or_cost(Top, Categories, #{reserved_bytes := Reserved, new_bytes := New} = Expected, Params, Until, State) ->
    Max = bounded(max_bytes, Params, 1, 1073741824, 1 bsl 40),
    case Expected of
        _ when Reserved > Max -> #{told => too_large, estimate => Expected};
        #{available_bytes := Available} when Reserved + New > Available div 2 -> #{told => too_large, estimate => Expected};
        _ ->
            Word = erlang:system_info(wordsize),
            Room = [{min_heap_size, Reserved div Word},
                    %% An `atomics' array counts as a binary, which would otherwise cause a garbage collection.
                    {min_bin_vheap_size, 4 * ?MAX_PLACES * ?CELLS},
                    max_words(max(2 * Reserved, Max) div Word)],
            Ms = counted_ms(Params),
            Counted = count_locks(Top, Categories, Room, Ms, Until),
            named_locks(Counted#{categories => [bin(C) || C <- Categories], estimate => Expected}, Ms, State)
    end.

%% Sets the mask, counts, and adds up the counts in a separate process: its heap has room for the counts and for the garbage of adding them
%% up, so that nothing is ever copied.
count_locks(Top, Categories, Room, Ms, Until) ->
    Collector = self(),
    %% A crash would be printed on the node.
    {Holder, Monitor} = spawn_opt(fun() -> catch hold_mask(Collector, Categories, Until) end, [monitor, {priority, high}]),
    {Began, Mask, LeftOut} = await_counting(Holder, Monitor, none, [], Until),
    Collected = case Began of
                    {counting, Before} ->
                        receive
                            {'DOWN', Monitor, process, _, _} -> lost
                        after Ms -> run_isolated(fun() -> collect_locks(Top, Before) end, Until, [{priority, high} | Room])
                        end;
                    NotBegun -> NotBegun
                end,
    demonitor(Monitor, [flush]),
    mask_back(Holder, Categories, Mask, Until),
    case Collected of
        {ok, #{end_ns := End} = Counted} ->
            Counted#{told => ok, left_out => [bin(C) || C <- LeftOut], us => (now_ns() - End) div 1000};
        {failed, Why} -> error({not_collected, Why});
        large -> #{told => too_large};
        late -> #{told => limit};
        NotCounted -> #{told => NotCounted}
    end.

%% {{counting, reductions until then} or why not, the mask to restore, categories that are not restored}
await_counting(Holder, Monitor, Mask, LeftOut, Until) ->
    receive
        {Holder, mask, PutBack, Rest} -> await_counting(Holder, Monitor, PutBack, Rest, Until);
        {Holder, counting, Reductions} -> {{counting, Reductions}, Mask, LeftOut};
        {Holder, refused, Why} -> {Why, Mask, LeftOut};
        {'DOWN', Monitor, process, _, _} -> {lost, Mask, LeftOut}
    after ms_until(Until) -> {no_answer, Mask, LeftOut}
    end.

%% Tells the mask holder to restore the mask, or restores it itself if the holder was killed.
mask_back(Holder, Categories, Mask, Until) ->
    Monitor = monitor(process, Holder),
    Holder ! {self(), counted},
    receive
        {'DOWN', Monitor, process, _, Why} when Why =:= normal; Mask =:= none -> ok;
        {'DOWN', Monitor, process, _, _} ->
            run_isolated(fun() -> reset_mask(Categories, Mask) end, max(Until, now_ns() + ?MASK_LATE_MS * 1000000))
    after max(?MASK_LATE_MS, ms_until(Until)) ->
        %% The holder does so as soon as it can.
        demonitor(Monitor, [flush])
    end.

%% Sets the mask, begins counting, and restores the mask when the client requests it or ends, or at its deadline. Each of these calls runs on
%% a dirty scheduler, and waits until one is free.
hold_mask(Client, Categories, Until) ->
    Monitor = monitor(process, Client),
    case catch register(?COUNTS_LOCKS, self()) of
        true ->
            case erts_debug:lcnt_control(copy_save) of
                %% The counts of categories that are switched off would be kept like those of destroyed locks.
                true -> Client ! {self(), refused, copy_save};
                false ->
                    Before = erts_debug:lcnt_control(mask),
                    %% The client may have given up by now.
                    is_over(Client, Monitor, 0) orelse hold_mask(Client, Monitor, Categories, Before, Until)
            end;
        _ -> Client ! {self(), refused, busy}
    end.

hold_mask(Client, Monitor, Categories, Before, Until) ->
    PutBack = put_back(Categories, Before),
    %% If this process is killed, the client restores the mask.
    Client ! {self(), mask, PutBack, Before -- PutBack},
    try
        set_mask(Before, Categories),
        erts_debug:lcnt_clear(),
        {Reductions, _} = erlang:statistics(reductions),
        Client ! {self(), counting, Reductions},
        is_over(Client, Monitor, ms_until(Until) + ?GRACE_MS)
    after reset_mask(Categories, PutBack)
    end.

%% The counters freed when `process' is switched off lie in carriers of each scheduler, where other blocks keep the carriers alive; new counters
%% come from the shared instance. With 100,000 processes, the VM would use 500 MB more memory of the host than before.
put_back(Categories, Before) ->
    case erlang:system_info(process_count) > ?PROCESSES_PUT_BACK andalso not lists:member(process, Categories) of
        true -> Before -- [process];
        false -> Before
    end.

is_over(Client, Monitor, Ms) ->
    receive
        {Client, counted} -> true;
        {put_back, ?MODULE} -> true;
        {'DOWN', Monitor, process, _, _} -> true
    after Ms -> false
    end.

set_mask(From, To) -> lists:sort(From) =:= lists:sort(To) orelse erts_debug:lcnt_control(mask, To).

%% A mask that somebody else has set in the meantime stays.
reset_mask(Categories, Mask) ->
    lists:sort(erts_debug:lcnt_control(mask)) =:= Categories andalso set_mask(Categories, Mask).

%% A purge kills all processes that run this module, so it has to wait for the mask holder. A holder of another version ignores the request, and
%% is not affected.
mask_is_back() ->
    case whereis(?COUNTS_LOCKS) of
        undefined -> true;
        Holder ->
            Monitor = monitor(process, Holder),
            Holder ! {put_back, ?MODULE},
            receive {'DOWN', Monitor, process, _, _} -> true after ?MASK_MS -> false end
    end.

-record(counts, {places = #{}, cells, unplaced = 0}).
-record(longest, {top, min = {0, 0, 0}, count = 0, locks = []}).

%% In the separate process, at priority high, so that the period of counting ends in time. Before: reductions at its beginning.
collect_locks(Top, Before) ->
    {Reductions, _} = erlang:statistics(reductions),
    Processes = erlang:system_info(process_count),
    End = now_ns(),
    Counts = erts_debug:lcnt_collect(),
    Mask = lists:sort(erts_debug:lcnt_control(mask)),
    {_, Locks} = lists:keyfind(locks, 1, Counts),
    length(Locks) > ?LOCKS_AT_ONCE andalso process_flag(priority, normal),
    (summed(Top, Counts))#{end_ns => End, mask => [bin(C) || C <- Mask], reductions => Reductions - Before, processes => Processes}.

%% Sums of the counts, as reported. The tests compare these with lcnt's own tables.
summed(Top, Collected) ->
    {_, {S, Ns}} = lists:keyfind(duration, 1, Collected),
    {_, Locks} = lists:keyfind(locks, 1, Collected),
    Cells = atomics:new(?MAX_PLACES * ?CELLS, []),
    {Count, Counts, Longest} = add_locks(Locks, 0, #counts{cells = Cells}, #longest{top = Top}),
    Classes = class_rows(Counts),
    Room = max(0, ?MAX_LOCK_ROWS - lists:sum([length(Places) || {_, _, _, Places} <- Classes])),
    Singles = fitting((longest(Longest))#longest.locks, Room * ?SINGLES_PERMILLE div 1000),
    Rows = [{bin(Class), bin(Kind), Id, 1, [place(P) || P <- Places, is_taken(P)]}
            || {_, _, {Class, Id, Kind, Places}} <- Singles],
    Left = Room - lists:sum([length(Places) || {_, _, _, _, Places} <- Rows]),
    Rests = fitting_rows(rests(Singles, Locks), Left),
    #{duration_us => 1000000 * S + Ns div 1000, locks => Count, unplaced => Counts#counts.unplaced, singles => length(Singles),
      classes => Classes, rows => Rows ++ Rests, cost_bytes => collected_bytes(Count, Counts)}.

%% Approximate memory: the counts as a term, the list from which the VM built it, and the garbage of adding them up. A process cannot read
%% how much of its own heap is used.
collected_bytes(Locks, #counts{places = Known, cells = Cells}) ->
    Places = lists:sum([atomics:get(Cells, At + 1) || At <- maps:values(Known)]),
    erlang:system_info(wordsize) * (Locks * (?WORDS_OF_LOCK + ?GARBAGE_OF_LOCK + 2) + Places * ?WORDS_OF_PLACE + ?MAX_PLACES * ?CELLS).

%% {number, sums of all classes by place, the locks with the longest waits}; leaves almost no garbage.
add_locks([{Class, Id, Kind, Places} = Lock | Locks], Index, Counts, Longest) ->
    Added = lists:foldl(fun(Place, C) -> add_place(Class, Kind, Place, C) end, Counts, Places),
    Next = case Id of
               %% A lock without an id is counted in its class only.
               [] -> Longest;
               _ -> add_longest(sums(Places, 0, 0, 0), Index, Lock, Longest)
           end,
    add_locks(Locks, Index + 1, Added, Next);
add_locks([], Count, Counts, Longest) -> {Count, Counts, Longest}.

add_place(Class, Kind, {{File, Line}, Numbers, Histogram}, #counts{places = Places, cells = Cells} = Counts) ->
    Key = {Class, Kind, File, Line},
    case Places of
        #{Key := At} -> add_cells(At, Numbers, Histogram, Cells), Counts;
        _ when map_size(Places) < ?MAX_PLACES ->
            At = map_size(Places) * ?CELLS,
            add_cells(At, Numbers, Histogram, Cells),
            Counts#counts{places = Places#{Key => At}};
        _ -> Counts#counts{unplaced = Counts#counts.unplaced + 1}
    end.

add_cells(At, {0, 0, {0, 0, 0}}, _, Cells) -> atomics:add(Cells, At + 1, 1);
add_cells(At, {Tries, Collisions, {_, _, Waits} = Waited}, Histogram, Cells) ->
    atomics:add(Cells, At + 1, 1),
    atomics:add(Cells, At + 2, Tries),
    atomics:add(Cells, At + 3, Collisions),
    atomics:add(Cells, At + 4, waited_us(Waited)),
    atomics:add(Cells, At + 5, Waits),
    Waits > 0 andalso add_bins(tuple_size(Histogram), max(0, ?BINS - tuple_size(Histogram)), Histogram, At + 5, Cells).

%% If the clock has no better resolution, there are 20 bins, the first one for all waits below 2^11 ns.
add_bins(0, _, _, _, _) -> ok;
add_bins(N, Shift, Histogram, At, Cells) ->
    case element(N, Histogram) of
        0 -> ok;
        Count -> atomics:add(Cells, At + min(?BINS, N + Shift), Count)
    end,
    add_bins(N - 1, Shift, Histogram, At, Cells).

%% Rounded as lcnt does, for each lock and place.
waited_us({S, Ns, _}) -> 1000000 * S + Ns div 1000.

%% {waited, collisions, tries} of a lock, by which locks are ranked.
sums([{_, {Tries0, Collisions0, Waited0}, _} | Places], Waited, Collisions, Tries) ->
    sums(Places, Waited + waited_us(Waited0), Collisions + Collisions0, Tries + Tries0);
sums([], Waited, Collisions, Tries) -> {Waited, Collisions, Tries}.

add_longest(Sums, _, _, #longest{min = Min} = Longest) when Sums =< Min -> Longest;
add_longest(Sums, Index, Lock, #longest{top = Top, count = Count, locks = Locks} = Longest) ->
    Next = Longest#longest{count = Count + 1, locks = [{Sums, Index, Lock} | Locks]},
    case Count > 2 * Top + 100 of
        true -> longest(Next);
        false -> Next
    end.

%% Keeps only the top locks, highest first.
longest(#longest{top = Top, locks = Locks} = Longest) ->
    Kept = lists:sublist(lists:reverse(lists:sort(Locks)), Top),
    Min = case length(Kept) of Top -> element(1, lists:last(Kept)); _ -> Longest#longest.min end,
    Longest#longest{min = Min, count = length(Kept), locks = Kept}.

%% The first locks whose places fit.
fitting([{_, _, {_, _, _, Places}} = Lock | Locks], Room) ->
    case Room - length([P || P <- Places, is_taken(P)]) of
        Left when Left >= 0 -> [Lock | fitting(Locks, Left)];
        _ -> []
    end;
fitting([], _) -> [].

fitting_rows([{_, _, _, _, Places} = Row | Rows], Room) when length(Places) =< Room ->
    [Row | fitting_rows(Rows, Room - length(Places))];
fitting_rows(_, _) -> [].

%% {Class, Kind, Locks, [Place]}, those with the longest waits first. Classes whose locks were never taken are included.
class_rows(#counts{places = Places, cells = Cells}) ->
    Classes = maps:fold(fun({Class, Kind, File, Line}, At, All) ->
                            [Locks | Numbers] = [atomics:get(Cells, At + N) || N <- lists:seq(1, ?CELLS)],
                            {Most, Found} = maps:get({Class, Kind}, All, {0, []}),
                            All#{{Class, Kind} => {max(Most, Locks), [row(File, Line, Numbers) || lists:sum(Numbers) > 0] ++ Found}}
                        end, #{}, Places),
    Waited = fun(Rows) -> lists:sum([element(5, Row) || Row <- Rows]) end,
    Sorted = lists:reverse(lists:sort([{Waited(Rows), bin(Class), bin(Kind), Locks, Rows}
                                       || {{Class, Kind}, {Locks, Rows}} <- maps:to_list(Classes)])),
    [{Class, Kind, Locks, or_nothing(Rows)} || {_, Class, Kind, Locks, Rows} <- Sorted].

or_nothing([]) -> [row(undefined, 0, [0, 0, 0, 0])];
or_nothing(Rows) -> Rows.

is_taken({_, Numbers, _}) -> Numbers =/= {0, 0, {0, 0, 0}}.

place({{File, Line}, Numbers, Histogram}) -> row(File, Line, numbers(Numbers, Histogram)).

%% [Tries, Collisions, Microseconds, Waits | Bins]
numbers({Tries, Collisions, {_, _, Waits} = Waited}, Histogram) ->
    Shift = max(0, ?BINS - tuple_size(Histogram)),
    [Tries, Collisions, waited_us(Waited), Waits
     | lists:duplicate(Shift, 0) ++ lists:sublist(tuple_to_list(Histogram), ?BINS)].

%% {File, Line, Tries, Collisions, Microseconds, Waits, Bins}, without the zeros at the end.
row(File, Line, [Tries, Collisions, Us, Waits | Bins]) ->
    Named = case File of undefined -> undefined; _ -> bin(File) end,
    Kept = lists:reverse(lists:dropwhile(fun(Count) -> Count =:= 0 end, lists:reverse(Bins))),
    {Named, Line, Tries, Collisions, Us, Waits, Kept}.

%% Several locks may have the same name, such as the slots of a table: sums of all other locks with the names of the top ones, by name.
rests(Singles, Locks) ->
    Names = maps:from_list([{{Class, Id}, true} || {_, _, {Class, Id, Kind, _}} <- Singles, Kind =/= proclock]),
    Alone = maps:from_list([{Index, true} || {_, Index, _} <- Singles]),
    case map_size(Names) of
        0 -> [];
        _ -> [{bin(Class), bin(Kind), Id, Count, or_nothing([row(File, Line, N) || {{File, Line}, N} <- maps:to_list(Places)])}
              || {{Class, Id}, {Kind, Count, Places}} <- maps:to_list(add_rests(Locks, 0, Names, Alone, #{}))]
    end.

add_rests([{_, _, proclock, _} | Locks], Index, Names, Alone, Rests) -> add_rests(Locks, Index + 1, Names, Alone, Rests);
add_rests([{Class, Id, Kind, Places} | Locks], Index, Names, Alone, Rests) ->
    Key = {Class, Id},
    case Names of
        #{Key := _} when not is_map_key(Index, Alone) ->
            {_, Count, Before} = maps:get(Key, Rests, {Kind, 0, #{}}),
            After = lists:foldl(fun add_rest/2, Before, Places),
            add_rests(Locks, Index + 1, Names, Alone, Rests#{Key => {Kind, Count + 1, After}});
        _ -> add_rests(Locks, Index + 1, Names, Alone, Rests)
    end;
add_rests([], _, _, _, Rests) -> Rests.

add_rest({At, Numbers, Histogram} = Place, Places) ->
    case {is_taken(Place), Places} of
        {false, _} -> Places;
        {true, #{At := Before}} -> Places#{At := add_lists(Before, numbers(Numbers, Histogram))};
        {true, _} -> Places#{At => numbers(Numbers, Histogram)}
    end.
