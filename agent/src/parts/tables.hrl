%% `ets': memory of all ETS tables, the largest ones, and their owners.

%% Maximum number of modules whose application is cached.
-define(KNOWN_MODULES, 100).

-record(tables, {words = 0, top, owners = #{}, slow = [], each = #{}}).

%% A table may vanish between any two calls here: then ets:info returns `undefined'.
tables(Top, State) ->
    case next_part(tables, State#state.tables, State) of
        {not_yet, Listing} ->
            {(unread(State#state.tables, erlang:system_info(ets_count)))#{rows => [], owners => []}, Listing};
        {Part, Begun} -> tables(Top, Part, Begun)
    end.

tables(Top, Part, #state{agent = Agent, large_tables = Large, features = Features} = State) ->
    Weigh = fun(Tab, _) ->
               case {ets:info(Tab, owner), ets:info(Tab, decentralized_counters)} of
                   {Agent, _} -> undefined;
                   {Owner, false} when is_pid(Owner) -> {Owner, ets:info(Tab, memory)};
                   {Owner, true} when is_pid(Owner) -> {Owner, slow};
                   _ -> undefined
               end
           end,
    Memory = fun(Tab, _) -> ets:info(Tab, memory) end,
    Old = maps:keys(Large),
    Carried = add_all(Old, read_all(Memory, Old), fun rank_table/3, #tables{top = top(Top)}),
    {Round, Found, State1} =
        scan_each(Part, 8, Part#round.total, Weigh, fun(Tab, Reading, Acc) -> add_table(Tab, Reading, Large, Acc) end, Carried, State),
    %% All schedulers add up size and memory of a table with decentralized counters (1 ms on a busy node): these come last and few
    %% at a time, others each time.
    Slow = lists:sublist(rotate(Round#round.number * 16, Found#tables.slow -- Old), 16),
    Tables = add_all(Slow, read_all(Memory, Slow), fun rank_table/3, Found),
    Word = erlang:system_info(wordsize),
    Ranked = top_list(Tables#tables.top),
    Owners = Tables#tables.owners,
    %% If there are few tables, one part reads them all.
    Each = case Round of
               #round{part = 1, rest = [], total = Total} when Total =< ?FOLLOWED_OF -> Tables#tables.each;
               _ -> none
           end,
    #state{growing = #growing{growers = Growers}} = State2 = follow([Tab || {_, Tab} <- Ranked], Each, State1),
    Others = unique([Tab || Tab <- Growers, not lists:keymember(Tab, 2, Ranked)]),
    Reported = Ranked ++ [{Words, Tab} || {Tab, Words} <- lists:zip(Others, read_all(Memory, Others)), is_integer(Words)],
    Read = details(fun(Tab) -> table_row(Tab, Features) end, [Tab || {_, Tab} <- Reported], State2),
    {Rows, State3} = lists:mapfoldl(fun({Tab, Row}, S) -> with_module(Tab, Row, lists:member(Tab, Growers), S) end, State2, Read),
    Counts = maps:map(fun(_, {Count, _}) -> Count end, Owners),
    OwnerRows = details(fun(Pid) -> owner(Pid, Features) end, best(Counts, Top), State3),
    Head = head(Round),
    {Head#{memory_bytes => Tables#tables.words * Word, unread => length(Found#tables.slow -- Old) - length(Slow),
           rows => [Row#{memory_bytes => Words * Word} || {Words, Tab} <- Reported, {T, Row} <- Rows, T =:= Tab],
           owners => [Row#{tables => Count, memory_bytes => Words * Word}
                      || {Pid, Row} <- OwnerRows, {Count, Words} <- [maps:get(Pid, Owners)]]},
     (list_before_next(tables, Round, State3))#state{tables = Round, large_tables = maps:from_list([{Tab, true} || {_, Tab} <- Ranked])}}.

%% Adds the module that created a growing table, as far as its name or owner shows it, and the module's application.
with_module(Tab, Row, true, State) ->
    case module_of(Row) of
        undefined -> {{Tab, Row#{module => <<>>}}, State};
        Module ->
            {Application, Next} = application_of(Module, State),
            {{Tab, Row#{module => bin(Module), application => Application}}, Next}
    end;
with_module(Tab, Row, false, State) -> {{Tab, Row}, State}.

%% A table often has the name of its module. In a supervisor's call, the callback module is in the place of the function; generic modules that
%% start others say nothing.
module_of(#{name := Name} = Row) ->
    Called = case Row of
                 #{owner_call := {<<"supervisor">>, Callback, 1}} -> [Callback];
                 #{owner_call := {Started, _, _}} -> [Started || not lists:member(Started, [<<"erlang">>, <<"proc_lib">>, <<"gen_server">>])];
                 _ -> []
             end,
    case [Loaded || Text <- [Name, maps:get(owner_name, Row, <<>>)] ++ Called, Loaded <- loaded_module(Text)] of
        [First | _] -> First;
        [] -> undefined
    end.

loaded_module(Text) ->
    try binary_to_existing_atom(Text, utf8) of
        Module -> [Module || erlang:module_loaded(Module)]
    catch error:_ -> []
    end.

%% <<>> if no loaded application contains the module. Cached, so the module lists are read once per module.
application_of(Module, #state{applications = Known} = State) ->
    case Known of
        #{Module := Application} -> {Application, State};
        _ ->
            Loaded = ets:select(ac_tab, [{{{loaded, '$1'}, '_'}, [], ['$1']}]),
            Application = case lists:member(Module, erlang:pre_loaded()) of
                              true -> <<"erts">>;
                              false -> find_application(Module, Loaded)
                          end,
            {Application, State#state{applications = case map_size(Known) < ?KNOWN_MODULES of
                                                         true -> Known#{Module => Application};
                                                         false -> #{Module => Application}
                                                     end}}
    end.

find_application(_, []) -> <<>>;
find_application(Module, [Application | Others]) ->
    case application:get_key(Application, modules) of
        {ok, Modules} ->
            case lists:member(Module, Modules) of
                true -> bin(Application);
                false -> find_application(Module, Others)
            end;
        undefined -> find_application(Module, Others)
    end.

add_table(Tab, {Owner, Memory}, Large, #tables{owners = Owners} = Acc) ->
    {Count, Words} = maps:get(Owner, Owners, {0, 0}),
    Own = case is_integer(Memory) of true -> Words + Memory; false -> Words end,
    Next = Acc#tables{owners = Owners#{Owner => {Count + 1, Own}}},
    case Memory of
        slow -> Next#tables{slow = [Tab | Next#tables.slow]};
        undefined -> Next;
        _ when is_map_key(Tab, Large) -> weighed(Tab, Memory, Next);
        _ -> rank_table(Tab, Memory, weighed(Tab, Memory, Next))
    end;
add_table(_, _, _, Acc) -> Acc.

weighed(Tab, Memory, #tables{words = Words, each = Each} = Acc) when map_size(Each) < ?FOLLOWED_OF ->
    Acc#tables{words = Words + Memory, each = Each#{Tab => Memory}};
weighed(_, Memory, #tables{words = Words} = Acc) -> Acc#tables{words = Words + Memory}.

rank_table(Tab, Memory, #tables{top = Top} = Acc) when is_integer(Memory) -> Acc#tables{top = top_add(Memory, Tab, Top)};
rank_table(_, _, Acc) -> Acc.

rotate(_, []) -> [];
rotate(By, List) ->
    {First, Rest} = lists:split(By rem length(List), List),
    Rest ++ First.

table_row(Tab, Features) ->
    case [ets:info(Tab, I) || I <- [owner, name, size, type, protection, keypos, named_table, compressed, fixed]] of
        [Owner, Name, Size, Type, Protection, KeyPos, Named, Compressed, Fixed] when is_pid(Owner), is_integer(KeyPos) ->
            Row = #{id => case Named of true -> <<>>; _ -> bin(ref_to_list(Tab)) end,
                    name => bin(Name), named => Named, size => Size, type => Type,
                    protection => Protection, keypos => KeyPos, compressed => Compressed, fixed => Fixed,
                    read_concurrency => ets:info(Tab, read_concurrency),
                    write_concurrency => ets:info(Tab, write_concurrency),
                    decentralized_counters => ets:info(Tab, decentralized_counters)},
            maps:merge(Row, owner(Owner, Features));
        _ -> undefined
    end.
