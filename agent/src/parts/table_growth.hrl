%% `table_growth': number of objects and memory of tables that may be growing, in each sample; whether their objects belong to processes
%% that have ended; and the binaries that they hold. Of an object, only a pid and references to binaries are read.

%% Number of tables that are followed because they grew the most, in addition to the largest ones. With more tables than FOLLOWED_OF,
%% only the largest ones are followed.
-define(GROWERS, 10).
-define(FOLLOWED_OF, 1000).
%% Number of tables with decentralized counters read each time: all schedulers take part in each.
-define(SLOW_FOLLOWED, 2).
%% Number of tables reported, plus one for each ONE_MORE_NS, up to MAX_REPORTED: each becomes series of a recording.
-define(REPORTED_TABLES, 20).
-define(ONE_MORE_NS, 60000000000).
-define(MAX_REPORTED, 1000).
%% Objects are sampled from a table that has gained MORE_ROWS: at most once in ROWS_PAUSE_NS from each table and from SAMPLED_TABLES
%% tables, SAMPLED_ROWS of each, for at most ASKING_NS.
-define(MORE_ROWS, 20).
-define(SAMPLED_TABLES, 3).
-define(ROWS_PAUSE_NS, 10000000000).
-define(SAMPLED_ROWS, 100).
-define(ASKING_NS, 5000000).
%% Number of objects by which the usual number of elements is found, and the maximum of that. If a key is a tuple of at most KEY_ELEMENTS
%% elements, the pid may be one of them.
-define(MEASURED_ROWS, 10).
-define(ROW_ELEMENTS, 16).
-define(KEY_ELEMENTS, 4).

%% The holders of binaries are measured from this much binary memory on, in bytes (judgement: the total memory of the smallest nodes).
-define(LARGE_BINARIES, 32000000).
%% Binaries are measured in MEASURED_TABLES tables in each sample, in each table at most once in MEASURE_PAUSE_NS, and in EVER_MEASURED
%% tables in all, plus one for each ONE_MORE_NS, up to MAX_REPORTED, since each becomes series of a recording. Apart from the followed
%% tables, these are the LARGEST_TABLES ones with the most objects, with at least MIN_ROWS.
-define(MEASURED_TABLES, 3).
-define(MEASURE_PAUSE_NS, 60000000000).
-define(EVER_MEASURED, 100).
-define(LARGEST_TABLES, 20).
-define(MIN_ROWS, 10).
%% The elements with binaries are found in SEARCHED_ROWS objects, among the first SEARCHED_ELEMENTS elements; if an element is a tuple (a
%% record) of at most that size, among its elements, too, but at most SEARCHED_INNER of them. MEASURED_PLACES of these are measured.
-define(SEARCHED_ROWS, 30).
-define(SEARCHED_ELEMENTS, 8).
-define(SEARCHED_INNER, 16).
-define(MEASURED_PLACES, 6).

%% A followed table. first: its initial size; grown: whether it was ever larger; sampled, sampled_ns: size when objects were last sampled
%% (initially `first'), and when.
-record(followed, {first, grown = false, sampled, sampled_ns = none}).

%% Called by `ets', which has measured all tables: selects the tables to follow until the next time, those that grew the most since the last
%% time and the largest ones. At first, without earlier sizes, `table_growth' measures the growth.
follow(Ranked, Words, #state{growing = #growing{words = Before} = Growing} = State) ->
    Growers = case {Words, Before} of
                  {none, _} -> [];
                  {_, none} -> Growing#growing.growers;
                  _ -> growers(maps:to_list(Words), Before)
              end,
    State#state{growing = Growing#growing{words = Words, most = unknown, is_first = Before =:= none andalso Words =/= none, growers = Growers, largest = Ranked}}.

growers(Now, Before) ->
    Grown = lists:foldl(fun({Tab, Words}, Top) when is_integer(Words) -> top_add(Words - maps:get(Tab, Before, Words), Tab, Top);
                           (_, Top) -> Top
                        end, top(?GROWERS), Now),
    [Tab || {_, Tab} <- top_list(Grown)].

table_growth(State) ->
    #state{growing = #growing{largest = Largest, growers = Growers, rows = Known} = Growing} = State1 = first_growth(State),
    Read = sizes(unique(Growers ++ Largest)),
    Now = now_ns(),
    Rows = maps:from_list([{Tab, grown(Size, maps:get(Tab, Known, #followed{first = Size, sampled = Size}))} || {Tab, Size, _} <- Read]),
    Admitted = admit(Read, Rows, Growing#growing{sampled_ns = [At || At <- Growing#growing.sampled_ns, Now - At < ?ROWS_PAUSE_NS]}, Now - State#state.began_ns),
    {Ended, Next} = rows_of_ended(Read, Admitted, Now),
    Word = erlang:system_info(wordsize),
    Value = #{followed => length(Read), ended => Ended,
              rows => [{id(Tab), Size, Words * Word} || {Tab, Size, Words} <- Read, is_reported(Tab, Next)]},
    State2 = State1#state{growing = Next},
    case State2#state.binary_bytes >= ?LARGE_BINARIES of
        true -> with_binaries(Value, Read, Now, State2);
        false -> {Value, State2}
    end.

%% Measures the growth once, after the first `ets'.
first_growth(#state{growing = #growing{is_first = true, words = Before} = Growing} = State) ->
    Tabs = maps:keys(Before),
    Now = lists:zip(Tabs, read_all(fun(Tab, _) -> ets:info(Tab, memory) end, Tabs)),
    State#state{growing = Growing#growing{is_first = false, growers = growers(Now, Before)}};
first_growth(State) -> State.

%% [{Tab, Size, Words}]. All items of a table with decentralized counters are read in one call, since all schedulers take part each time that
%% its counters are added up. The agent's own tables are left out.
sizes(Tabs) ->
    Fast = read_all(fun(Tab, _) ->
                        case {ets:info(Tab, name), ets:info(Tab, decentralized_counters)} of
                            {?MODULE, _} -> undefined;
                            {_, false} -> [{I, ets:info(Tab, I)} || I <- [size, memory]];
                            {_, true} -> slow;
                            _ -> undefined
                        end
                    end, Tabs),
    Read = lists:zip(Tabs, Fast),
    Slow = lists:sublist([Tab || {Tab, slow} <- Read], ?SLOW_FOLLOWED),
    All = [{Tab, Info} || {Tab, [_ | _] = Info} <- Read ++ lists:zip(Slow, read_all(fun(Tab, _) -> ets:info(Tab) end, Slow))],
    [{Tab, Size, Words} || {Tab, Info} <- All,
                           {Size, Words} <- [{proplists:get_value(size, Info), proplists:get_value(memory, Info)}],
                           is_integer(Size), is_integer(Words)].

grown(Size, #followed{first = First} = Followed) -> Followed#followed{grown = Followed#followed.grown orelse Size > First}.

%% A table is reported from when it has grown, if the limit allows one more.
admit(Read, Rows, #growing{reported = Reported} = Growing, SinceNs) ->
    Room = min(?MAX_REPORTED, ?REPORTED_TABLES + SinceNs div ?ONE_MORE_NS) - map_size(Reported),
    New = [Tab || {Tab, _, _} <- Read, not is_map_key(Tab, Reported), #followed{grown = true} <- [maps:get(Tab, Rows)]],
    Growing#growing{rows = Rows, reported = maps:merge(Reported, maps:from_list([{Tab, true} || Tab <- lists:sublist(New, max(0, Room))]))}.

is_reported(Tab, #growing{reported = Reported}) -> is_map_key(Tab, Reported).

%% Samples the table that has gained the most objects since it was sampled: {[{Id, Sampled, Where, WithPid, Ended}], Growing}.
rows_of_ended(_, #growing{sampled_ns = Sampled} = Growing, _) when length(Sampled) >= ?SAMPLED_TABLES -> {[], Growing};
rows_of_ended(Read, #growing{rows = Rows, sampled_ns = Sampled} = Growing, Now) ->
    Due = [{Size - Before, Size, Tab} || {Tab, Size, _} <- Read,
                                         is_reported(Tab, Growing), #followed{sampled = Before, sampled_ns = At} <- [maps:get(Tab, Rows)],
                                         Size - Before >= ?MORE_ROWS, At =:= none orelse Now - At >= ?ROWS_PAUSE_NS],
    case lists:reverse(lists:sort(Due)) of
        [{_, Size, Tab} | _] ->
            Found = [{id(Tab), All, Where, WithPid, Ended} || {All, Where, WithPid, Ended} <- read_all(fun ended/2, [Tab])],
            Followed = (maps:get(Tab, Rows))#followed{sampled = Size, sampled_ns = Now},
            %% A table that cannot be read does not count towards the limit.
            {Found, Growing#growing{rows = Rows#{Tab => Followed}, sampled_ns = [Now || _ <- Found] ++ Sampled}};
        [] -> {[], Growing}
    end.

%% In the reader. The objects of a set come in the order of their keys' hashes, so the first ones are a fair sample. The first ones of an
%% ordered_set would be the oldest, and in a bag all objects of a key are visited at once, under a lock that blocks writers: half a million
%% take 0.1 s (db_select_chunk_hash counts its results after each bucket: erl_db_hash.c). A compressed table would have to unpack whole
%% objects. Each visited object counts as one result, so that no more than these are visited.
ended(Tab, _) ->
    case [ets:info(Tab, I) || I <- [type, protection, compressed, keypos]] of
        [Type, Protection, false, KeyPos] when Type =:= set, Protection =/= private, is_integer(KeyPos) ->
            Sized = [{'$1', [{'=:=', {size, '$1'}, N}], [N]} || N <- lists:seq(1, ?ROW_ELEMENTS)],
            %% The table may vanish between any two calls.
            try pids_of_rows(Tab, KeyPos, most_frequent([N || N <- select(Tab, Sized, ?MEASURED_ROWS), N > 0]))
            catch error:badarg -> undefined
            end;
        _ -> undefined
    end.

pids_of_rows(Tab, KeyPos, {Elements, _}) when KeyPos =< Elements ->
    Found = select(Tab, pids_in(KeyPos, Elements), ?SAMPLED_ROWS),
    case most_frequent([Where || {Where, _} <- Found]) of
        {Where, _} ->
            Alive = alive([Pid || {W, Pid} <- Found, W =:= Where], #{}, now_ns() + ?ASKING_NS),
            {length(Found), element(1, Where), length(Alive), length([ended || false <- Alive])};
        none -> {length(Found), none, 0, 0}
    end;
pids_of_rows(_, _, _) -> undefined.

%% Only a pid is copied from each object: a body that referred to the object would copy all of it (matchPushVResult in erl_db_util.c), a
%% guard does not. The pid is searched in the key, then within a key that is a tuple, then in other elements.
pids_in(KeyPos, Elements) ->
    Row = fun(Place, What) -> list_to_tuple([case N of Place -> What; _ -> '_' end || N <- lists:seq(1, Elements)]) end,
    Pid = fun(Head, Where, Place) -> {Head, [{is_pid, '$1'}], [{{{{Where, Place}}, '$1'}}]} end,
    Heads = [{Row(KeyPos, '$1'), key, 0}]
        ++ [{Row(KeyPos, list_to_tuple([case N of I -> '$1'; _ -> '_' end || N <- lists:seq(1, Size)])), in_key, I}
            || Size <- lists:seq(1, ?KEY_ELEMENTS), I <- lists:seq(1, Size)]
        ++ [{Row(Place, '$1'), element, Place} || Place <- lists:seq(1, Elements), Place =/= KeyPos],
    [Pid(Head, Where, Place) || {Head, Where, Place} <- Heads].

%% The results for the first objects, 0 for those that do not match. The continuation is dropped.
select(Tab, Spec, Count) ->
    case ets:select(Tab, Spec ++ [{'_', [], [0]}], Count) of
        {Found, _} -> Found;
        '$end_of_table' -> []
    end.

%% Measures the binaries in a few tables that were not measured recently, those with the most objects first.
with_binaries(Value, Read, Now, #state{growing = Growing, features = Features} = State) ->
    #growing{most = Most, measured = Measured, ever_measured = Ever} = Known = most_rows(Growing),
    Sizes = maps:merge(maps:from_list(Most), maps:from_list([{Tab, Size} || {Tab, Size, _} <- Read, Size >= ?MIN_ROWS])),
    Old = maps:with(maps:keys(Sizes), Measured),
    HasRoom = Ever < min(?MAX_REPORTED, ?EVER_MEASURED + (Now - State#state.began_ns) div ?ONE_MORE_NS),
    Due = [{not is_map_key(Tab, Old), Size, Tab} || {Tab, Size} <- maps:to_list(Sizes),
                                                    case Old of #{Tab := At} -> Now - At >= ?MEASURE_PAUSE_NS; #{} -> HasRoom end],
    Tabs = [Tab || {_, _, Tab} <- lists:sublist(lists:reverse(lists:sort(Due)), ?MEASURED_TABLES)],
    Found = [{Tab, Row} || {Tab, Row} <- lists:zip(Tabs, read_all(fun binaries_in/2, Tabs)), is_tuple(Row)],
    Holders = [Tab || {Tab, {_, _, _, Binaries, _, _, _}} <- Found, Binaries > 0],
    Rows = details(fun(Tab) -> weighed_row(Tab, Features) end, Holders, State),
    {Value#{binaries => [list_to_tuple([id(Tab) | tuple_to_list(Row)]) || {Tab, Row} <- Found], holders => [Row || {_, Row} <- Rows]},
     State#state{growing = Known#growing{measured = maps:merge(Old, maps:from_list([{Tab, Now} || Tab <- Tabs])),
                                         ever_measured = Ever + length(Tabs -- maps:keys(Old))}}}.

%% The tables with the most objects among all that `ets' has measured, once after each `ets'. Not by memory: a table of few large binaries
%% is small in words.
most_rows(#growing{most = unknown, words = Words} = Growing) when is_map(Words) ->
    Tabs = maps:keys(Words),
    Size = fun(Tab, _) -> case ets:info(Tab, decentralized_counters) of false -> ets:info(Tab, size); _ -> undefined end end,
    Top = lists:foldl(fun({Tab, Rows}, Acc) when is_integer(Rows), Rows >= ?MIN_ROWS -> top_add(Rows, Tab, Acc);
                         (_, Acc) -> Acc
                      end, top(?LARGEST_TABLES), lists:zip(Tabs, read_all(Size, Tabs))),
    Growing#growing{most = [{Tab, Rows} || {Rows, Tab} <- top_list(Top)]};
most_rows(#growing{most = unknown} = Growing) -> Growing#growing{most = []};
most_rows(Growing) -> Growing.

weighed_row(Tab, Features) ->
    case {table_row(Tab, Features), ets:info(Tab, memory)} of
        {#{} = Row, Words} when is_integer(Words) -> Row#{memory_bytes => Words * erlang:system_info(wordsize)};
        _ -> undefined
    end.

%% In the reader: {Size, Sampled, Hidden, Binaries, Bytes, Referenced, Held}, with Sampled = 0 if the table may not be read. Each binary is
%% copied as a reference (copy.c), whatever its size; other terms, and binaries within maps and lists, are not touched. In a bag all objects
%% of a key would be visited at once, see ended/2.
binaries_in(Tab, _) ->
    case [ets:info(Tab, I) || I <- [name, size, type, protection, compressed]] of
        [Name, Rows, Type, Protection, Compressed] when Name =/= ?MODULE, is_integer(Rows) ->
            case Compressed =:= false andalso Protection =/= private andalso (Type =:= set orelse Type =:= ordered_set) of
                true ->
                    Measured = try list_to_tuple([Rows | measure(Tab)]) catch error:badarg -> undefined end,
                    %% The reader must not keep the binaries alive.
                    erlang:garbage_collect(),
                    Measured;
                false -> {Rows, 0, 0, 0, 0, 0, 0}
            end;
        _ -> undefined
    end.

measure(Tab) ->
    Sized = [{'$1', [{'=:=', {size, '$1'}, N}], [N]} || N <- lists:seq(1, ?ROW_ELEMENTS)],
    case most_frequent([N || N <- select(Tab, Sized, ?MEASURED_ROWS), N > 0]) of
        none -> [0, 0, 0, 0, 0, 0];
        {Elements, _} ->
            Tops = [{Head, search(Tab, Head)} || N <- lists:seq(1, min(Elements, ?SEARCHED_ELEMENTS)),
                                                 Head <- [fun(What) -> tuple_with(Elements, N, What) end]],
            Heads = [fun(What) -> Head(tuple_with(Size, N, What)) end
                     || {Head, Found} <- Tops, Size <- lists:usort(Found), is_integer(Size), Size > 0, N <- lists:seq(1, Size)],
            Inner = [{Head, search(Tab, Head)} || Head <- lists:sublist(Heads, ?SEARCHED_INNER)],
            Hidden = [length([hidden || hidden <- Found]) || {_, Found} <- Tops]
                ++ [length([Kind || Kind <- Found, Kind =/= 0, Kind =/= binary]) || {_, Found} <- Inner],
            Sampled = lists:max([length(Found) || {_, Found} <- Tops]),
            Places = lists:sublist([Head || {Head, Found} <- Tops ++ Inner, lists:member(binary, Found)], ?MEASURED_PLACES),
            weigh_binaries(Tab, Places, Sampled, lists:max(Hidden))
    end.

%% The kind of term in one place of each of the first objects: `binary', the size of a small tuple, `hidden' for other terms that may hold
%% binaries, else 0.
search(Tab, Head) ->
    select(Tab, [{Head('$1'), [{is_binary, '$1'}], [binary]}]
               ++ [{Head(list_to_tuple(lists:duplicate(Size, '_'))), [], [Size]} || Size <- lists:seq(1, ?SEARCHED_ELEMENTS)]
               ++ [{Head('$1'), [{Is, '$1'}], [hidden]} || Is <- [is_map, is_tuple, is_function]]
               ++ [{Head('$1'), [{is_list, '$1'}, {'=/=', '$1', []}], [hidden]}], ?SEARCHED_ROWS).

tuple_with(Size, Place, What) -> list_to_tuple([case N of Place -> What; _ -> '_' end || N <- lists:seq(1, Size)]).

%% A binary of more than 64 bytes, and a sub-binary of such a one, has a reference count. The references that are not this process's own
%% share the binary, so that one that all objects refer to is not counted for each of them.
weigh_binaries(_, [], Sampled, Hidden) -> [Sampled, Hidden, 0, 0, 0, 0];
weigh_binaries(Tab, Places, _, Hidden) ->
    erlang:garbage_collect(),
    {binary, Before} = process_info(self(), binary),
    Found = [select(Tab, [{Head('$1'), [{is_binary, '$1'}], ['$1']}], ?SAMPLED_ROWS) || Head <- Places],
    Sizes = [{byte_size(Binary), binary:referenced_byte_size(Binary)} || Rows <- Found, Binary <- Rows, is_binary(Binary)],
    Large = [Size || {_, Whole} = Size <- Sizes, Whole > 64],
    %% Frees objects of the last bucket beyond the limit.
    erlang:garbage_collect(),
    {binary, After} = process_info(self(), binary),
    Own = lists:foldl(fun({Id, Whole, References}, Map) ->
                          {Count, _, _} = maps:get(Id, Map, {0, Whole, References}),
                          Map#{Id => {Count + 1, Whole, References}}
                      end, #{}, After),
    Held = [Count * Whole div max(1, References - Count)
            || {Id, {Count, Whole, References}} <- maps:to_list(Own), not lists:keymember(Id, 1, Before)],
    Sampled = lists:max([length(Rows) || Rows <- Found]),
    {Bytes, Referenced} = lists:unzip(Large),
    [Sampled, Hidden, length(Large), lists:sum(Bytes), lists:sum(Referenced), lists:sum(Held)].

%% For pids of this node and incarnation, whether each is alive, until the time limit.
alive([Pid | Pids], Known, Until) ->
    Is = case Known of
             #{Pid := Answer} -> Answer;
             #{} -> try is_process_alive(Pid) catch error:badarg -> foreign end
         end,
    More = case now_ns() < Until of true -> alive(Pids, Known#{Pid => Is}, Until); false -> [] end,
    case Is of foreign -> More; _ -> [Is | More] end;
alive([], _, _) -> [].

most_frequent(List) ->
    Counts = lists:foldl(fun(X, Map) -> merge(X, 1, fun erlang:'+'/2, Map) end, #{}, List),
    case lists:reverse(lists:keysort(2, maps:to_list(Counts))) of
        [Most | _] -> Most;
        [] -> none
    end.
