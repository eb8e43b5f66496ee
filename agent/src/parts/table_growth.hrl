%% `table_growth': rows and memory of the tables that may be growing, in each sample, whether their rows belong to processes that have
%% ended, and what binaries they hold. Of a row nothing is read but a pid in it, and references to binaries.

%% How many tables are followed besides the largest ones, because they grew the most. Where there are more tables than the second number,
%% only the largest ones are.
-define(GROWERS, 10).
-define(FOLLOWED_OF, 1000).
%% How many tables with decentralized counters are read each time: all schedulers take part in each.
-define(SLOW_FOLLOWED, 2).
%% How many tables are told of, one more for each such time, and how many ever: each becomes series of a recording.
-define(TOLD_TABLES, 20).
-define(ONE_MORE_NS, 60000000000).
-define(EVER_TOLD, 1000).
%% Rows are sampled of tables that have got so many more, of each one and of so many tables at most once in such a time, this many of each,
%% and for this long.
-define(MORE_ROWS, 20).
-define(SAMPLED_TABLES, 3).
-define(ROWS_PAUSE_NS, 10000000000).
-define(SAMPLED_ROWS, 100).
-define(ASKING_NS, 5000000).
%% How many rows say how many elements most have, and with how many at most they are looked at. In a key that is a tuple of so many
%% elements at most the pid may be one.
-define(MEASURED_ROWS, 10).
-define(ROW_ELEMENTS, 16).
-define(KEY_ELEMENTS, 4).

%% From so much memory of binaries on, in bytes, it is measured what holds them (judgement: what the smallest nodes have in all).
-define(LARGE_BINARIES, 32000000).
%% Binaries are measured in so many tables in each sample, in each table at most once in such a time, and in so many tables, one more for
%% each ONE_MORE_NS and EVER_TOLD ever, since each becomes series of a recording. Besides the tables that are followed these are the ones
%% with the most rows, of so many at least.
-define(MEASURED_TABLES, 3).
-define(MEASURE_PAUSE_NS, 60000000000).
-define(EVER_MEASURED, 100).
-define(MOST_ROWS, 20).
-define(FEWEST_ROWS, 10).
%% So many rows say in which elements binaries are, of the first so many; of a tuple (a record) of so many elements at most these too, but
%% no more than so many. So many of these places are measured.
-define(SEARCHED_ROWS, 30).
-define(SEARCHED_ELEMENTS, 8).
-define(SEARCHED_INNER, 16).
-define(MEASURED_PLACES, 6).

%% A table that is followed: how many rows it had at first, whether it has ever had more, how many it had when they were sampled (at first
%% those that it had at first), and when.
-record(followed, {first, grown = false, sampled, sampled_ns = none}).

%% With `ets', which has weighed all tables: which are followed until the next time. Those that grew the most since the last time, and the
%% largest ones. Before anything is known of growth, `table_growth' finds it out.
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
              rows => [{id(Tab), Size, Words * Word} || {Tab, Size, Words} <- Read, is_told(Tab, Next)]},
    State2 = State1#state{growing = Next},
    case State2#state.binary_bytes >= ?LARGE_BINARIES of
        true -> with_binaries(Value, Read, Now, State2);
        false -> {Value, State2}
    end.

%% At the first time after the first `ets'.
first_growth(#state{growing = #growing{is_first = true, words = Before} = Growing} = State) ->
    Tabs = maps:keys(Before),
    Now = lists:zip(Tabs, read_all(fun(Tab, _) -> ets:info(Tab, memory) end, Tabs)),
    State#state{growing = Growing#growing{is_first = false, growers = growers(Now, Before)}};
first_growth(State) -> State.

%% [{Tab, Rows, Words}]. A table with decentralized counters is asked for all at once, since all schedulers take part each time that its
%% counters are added up. The agent's own tables are left out.
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

%% A table is told from when it has grown, as far as there is room for it.
admit(Read, Rows, #growing{told = Told} = Growing, SinceNs) ->
    Room = min(?EVER_TOLD, ?TOLD_TABLES + SinceNs div ?ONE_MORE_NS) - map_size(Told),
    New = [Tab || {Tab, _, _} <- Read, not is_map_key(Tab, Told), #followed{grown = true} <- [maps:get(Tab, Rows)]],
    Growing#growing{rows = Rows, told = maps:merge(Told, maps:from_list([{Tab, true} || Tab <- lists:sublist(New, max(0, Room))]))}.

is_told(Tab, #growing{told = Told}) -> is_map_key(Tab, Told).

%% Of the table that has got the most rows since it was sampled: {[{Id, Sampled, Where, WithPid, Ended}], Growing}.
rows_of_ended(_, #growing{sampled_ns = Sampled} = Growing, _) when length(Sampled) >= ?SAMPLED_TABLES -> {[], Growing};
rows_of_ended(Read, #growing{rows = Rows, sampled_ns = Sampled} = Growing, Now) ->
    Due = [{Size - Before, Size, Tab} || {Tab, Size, _} <- Read,
                                         is_told(Tab, Growing), #followed{sampled = Before, sampled_ns = At} <- [maps:get(Tab, Rows)],
                                         Size - Before >= ?MORE_ROWS, At =:= none orelse Now - At >= ?ROWS_PAUSE_NS],
    case lists:reverse(lists:sort(Due)) of
        [{_, Size, Tab} | _] ->
            Found = [{id(Tab), All, Where, WithPid, Ended} || {All, Where, WithPid, Ended} <- read_all(fun ended/2, [Tab])],
            Followed = (maps:get(Tab, Rows))#followed{sampled = Size, sampled_ns = Now},
            %% One that may not be read takes no other's turn.
            {Found, Growing#growing{rows = Rows#{Tab => Followed}, sampled_ns = [Now || _ <- Found] ++ Sampled}};
        [] -> {[], Growing}
    end.

%% In the reader. Rows of a set come in the order of their keys' hashes, so that the first ones are a fair sample; those of an ordered_set
%% would be the oldest, and in a bag all rows of a key are visited at once, under a lock that keeps writers out: half a million take 0.1 s
%% (db_select_chunk_hash counts what it has found when a bucket is done: erl_db_hash.c). A compressed table would have to unpack whole rows. Each row that is visited counts as one result, so that
%% no more than these are visited.
ended(Tab, _) ->
    case [ets:info(Tab, I) || I <- [type, protection, compressed, keypos]] of
        [Type, Protection, false, KeyPos] when Type =:= set, Protection =/= private, is_integer(KeyPos) ->
            Sized = [{'$1', [{'=:=', {size, '$1'}, N}], [N]} || N <- lists:seq(1, ?ROW_ELEMENTS)],
            %% It may go between any two of these.
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

%% Of each row nothing but a pid is copied: a body that referred to the row would copy all of it (matchPushVResult in erl_db_util.c), a guard
%% does not. In the key first, then within a key that is a tuple, then in another element.
pids_in(KeyPos, Elements) ->
    Row = fun(Place, What) -> list_to_tuple([case N of Place -> What; _ -> '_' end || N <- lists:seq(1, Elements)]) end,
    Pid = fun(Head, Where, Place) -> {Head, [{is_pid, '$1'}], [{{{{Where, Place}}, '$1'}}]} end,
    Heads = [{Row(KeyPos, '$1'), key, 0}]
        ++ [{Row(KeyPos, list_to_tuple([case N of I -> '$1'; _ -> '_' end || N <- lists:seq(1, Size)])), in_key, I}
            || Size <- lists:seq(1, ?KEY_ELEMENTS), I <- lists:seq(1, Size)]
        ++ [{Row(Place, '$1'), element, Place} || Place <- lists:seq(1, Elements), Place =/= KeyPos],
    [Pid(Head, Where, Place) || {Head, Where, Place} <- Heads].

%% The results for the first rows, 0 for those that nothing matches. What would be needed to go on is dropped.
select(Tab, Spec, Count) ->
    case ets:select(Tab, Spec ++ [{'_', [], [0]}], Count) of
        {Found, _} -> Found;
        '$end_of_table' -> []
    end.

%% Which tables hold binaries, of a few that have not been measured of late, those with the most rows first.
with_binaries(Value, Read, Now, #state{growing = Growing, features = Features} = State) ->
    #growing{most = Most, measured = Measured, ever_measured = Ever} = Known = most_rows(Growing),
    Sizes = maps:merge(maps:from_list(Most), maps:from_list([{Tab, Size} || {Tab, Size, _} <- Read, Size >= ?FEWEST_ROWS])),
    Old = maps:with(maps:keys(Sizes), Measured),
    HasRoom = Ever < min(?EVER_TOLD, ?EVER_MEASURED + (Now - State#state.began_ns) div ?ONE_MORE_NS),
    Due = [{not is_map_key(Tab, Old), Size, Tab} || {Tab, Size} <- maps:to_list(Sizes),
                                                    case Old of #{Tab := At} -> Now - At >= ?MEASURE_PAUSE_NS; #{} -> HasRoom end],
    Tabs = [Tab || {_, _, Tab} <- lists:sublist(lists:reverse(lists:sort(Due)), ?MEASURED_TABLES)],
    Found = [{Tab, Row} || {Tab, Row} <- lists:zip(Tabs, read_all(fun binaries_in/2, Tabs)), is_tuple(Row)],
    Holders = [Tab || {Tab, {_, _, _, Binaries, _, _, _}} <- Found, Binaries > 0],
    Rows = details(fun(Tab) -> weighed_row(Tab, Features) end, Holders, State),
    {Value#{binaries => [list_to_tuple([id(Tab) | tuple_to_list(Row)]) || {Tab, Row} <- Found], holders => [Row || {_, Row} <- Rows]},
     State#state{growing = Known#growing{measured = maps:merge(Old, maps:from_list([{Tab, Now} || Tab <- Tabs])),
                                         ever_measured = Ever + length(Tabs -- maps:keys(Old))}}}.

%% Those with the most rows among all tables that `ets' has weighed, once after each time. In words of memory a table of few large
%% binaries is small.
most_rows(#growing{most = unknown, words = Words} = Growing) when is_map(Words) ->
    Tabs = maps:keys(Words),
    Size = fun(Tab, _) -> case ets:info(Tab, decentralized_counters) of false -> ets:info(Tab, size); _ -> undefined end end,
    Top = lists:foldl(fun({Tab, Rows}, Acc) when is_integer(Rows), Rows >= ?FEWEST_ROWS -> top_add(Rows, Tab, Acc);
                         (_, Acc) -> Acc
                      end, top(?MOST_ROWS), lists:zip(Tabs, read_all(Size, Tabs))),
    Growing#growing{most = [{Tab, Rows} || {Rows, Tab} <- top_list(Top)]};
most_rows(#growing{most = unknown} = Growing) -> Growing#growing{most = []};
most_rows(Growing) -> Growing.

weighed_row(Tab, Features) ->
    case {table_row(Tab, Features), ets:info(Tab, memory)} of
        {#{} = Row, Words} when is_integer(Words) -> Row#{memory_bytes => Words * erlang:system_info(wordsize)};
        _ -> undefined
    end.

%% In the reader: {Rows, Looked, Hidden, Binaries, Bytes, Referenced, Held}, with Looked = 0 where it may not be read. Each binary is copied
%% as a reference (copy.c), whatever its size; what of a row is no binary, or within a map or a list, is not touched. In a bag all rows of a
%% key would be visited at once, see ended/2.
binaries_in(Tab, _) ->
    case [ets:info(Tab, I) || I <- [name, size, type, protection, compressed]] of
        [Name, Rows, Type, Protection, Compressed] when Name =/= ?MODULE, is_integer(Rows) ->
            case Compressed =:= false andalso Protection =/= private andalso (Type =:= set orelse Type =:= ordered_set) of
                true ->
                    Measured = try list_to_tuple([Rows | measure(Tab)]) catch error:badarg -> undefined end,
                    %% What it referred to must not stay for its sake.
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
            Looked = lists:max([length(Found) || {_, Found} <- Tops]),
            Places = lists:sublist([Head || {Head, Found} <- Tops ++ Inner, lists:member(binary, Found)], ?MEASURED_PLACES),
            weigh_binaries(Tab, Places, Looked, lists:max(Hidden))
    end.

%% What each of the first rows has in a place: `binary', the size of a small tuple, `hidden' for other terms that may hold binaries, else 0.
search(Tab, Head) ->
    select(Tab, [{Head('$1'), [{is_binary, '$1'}], [binary]}]
               ++ [{Head(list_to_tuple(lists:duplicate(Size, '_'))), [], [Size]} || Size <- lists:seq(1, ?SEARCHED_ELEMENTS)]
               ++ [{Head('$1'), [{Is, '$1'}], [hidden]} || Is <- [is_map, is_tuple, is_function]]
               ++ [{Head('$1'), [{is_list, '$1'}, {'=/=', '$1', []}], [hidden]}], ?SEARCHED_ROWS).

tuple_with(Size, Place, What) -> list_to_tuple([case N of Place -> What; _ -> '_' end || N <- lists:seq(1, Size)]).

%% A binary of more than 64 bytes, or a part of such a one, has a count of references. As many of those as are not this process's own share
%% it, so that what is kept by all rows is not counted for each of them.
weigh_binaries(_, [], Looked, Hidden) -> [Looked, Hidden, 0, 0, 0, 0];
weigh_binaries(Tab, Places, _, Hidden) ->
    erlang:garbage_collect(),
    {binary, Before} = process_info(self(), binary),
    Found = [select(Tab, [{Head('$1'), [{is_binary, '$1'}], ['$1']}], ?SAMPLED_ROWS) || Head <- Places],
    Sizes = [{byte_size(Binary), binary:referenced_byte_size(Binary)} || Rows <- Found, Binary <- Rows, is_binary(Binary)],
    Large = [Size || {_, Whole} = Size <- Sizes, Whole > 64],
    %% A row of the same bucket that was one too many.
    erlang:garbage_collect(),
    {binary, After} = process_info(self(), binary),
    Own = lists:foldl(fun({Id, Whole, References}, Map) ->
                          {Count, _, _} = maps:get(Id, Map, {0, Whole, References}),
                          Map#{Id => {Count + 1, Whole, References}}
                      end, #{}, After),
    Held = [Count * Whole div max(1, References - Count)
            || {Id, {Count, Whole, References}} <- maps:to_list(Own), not lists:keymember(Id, 1, Before)],
    Looked = lists:max([length(Rows) || Rows <- Found]),
    {Bytes, Referenced} = lists:unzip(Large),
    [Looked, Hidden, length(Large), lists:sum(Bytes), lists:sum(Referenced), lists:sum(Held)].

%% Of pids that are this node's and of this life of it, whether each is alive, until the time is over.
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
