%% A few hundred megabytes of memory in use: tables, caches of binaries of many sizes, servers with a large state,
%% persistent terms. Their total sizes are constant; their content is replaced all the time.
-module(lab_healthy_memory).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    TableMb = lab:int(Context, table_mb, 70, 110),
    CacheMb = lab:int(Context, cache_mb, 80, 140),
    StateMb = lab:int(Context, state_mb, 6, 12),
    PerS = lab:int(Context, per_s, 200, 500),
    [Table, SmallCache, LargeCache | Terms] = lab:names(Context, tables, 5),
    [Owner, SmallOwner, LargeOwner | Servers] = Names = lab:names(Context, processes, lab:int(Context, processes, 6, 9)),
    [persistent_term:put(Term, lists:seq(1, 50000)) || Term <- Terms],
    Filled = lab:counter(),
    %% A replacement has the size of the binary that it replaces, so that the sum is constant.
    Small = fun(Slot) -> 100 + erlang:phash2({small, Slot}, 4000) end,
    Large = fun(Slot) -> (20 + erlang:phash2({large, Slot}, 1200)) * ?KB end,
    lab:start(Owner, fun() -> table(Table, TableMb, PerS, Filled) end),
    lab:start(SmallOwner, fun() -> cache(SmallCache, Small, CacheMb * ?MB div 2, PerS, Filled) end),
    lab:start(LargeOwner, fun() -> cache(LargeCache, Large, CacheMb * ?MB div 2, 10, Filled) end),
    [lab:start(Server, fun() -> server(StateMb * ?MB, PerS, Filled) end) || Server <- Servers],
    lab:wait_until(filled, fun() -> lab:total(Filled) =:= length(Names) end),
    #{
        sick => none,
        details => #{
            table => Table, table_mb => TableMb, owner => Owner, caches => {list, [SmallCache, LargeCache]},
            cache_mb => CacheMb, servers => {list, Servers}, state_mb => StateMb, per_s => PerS,
            terms => {list, Terms}
        }
    }.

%% Objects, each of which is replaced now and then.
table(Name, Mb, PerS, Filled) ->
    ets:new(Name, [named_table, public, {read_concurrency, true}]),
    Rows = fill_table(Name, Mb * ?MB, 1),
    Replace = fun() -> ets:insert(Name, row(rand:uniform(Rows))) end,
    %% Most objects of a table rarely change.
    wear_in(Rows div 3, Replace, Filled),
    at_rate(PerS, Replace).

fill_table(Name, Bytes, Next) ->
    true = ets:insert(Name, [row(Key) || Key <- lists:seq(Next, Next + 999)]),
    case ets:info(Name, memory) * erlang:system_info(wordsize) < Bytes of
        true -> fill_table(Name, Bytes, Next + 1000);
        false -> Next + 999
    end.

row(Key) -> {Key, open, lists:seq(Key, Key + 30 + rand:uniform(10)), <<"some thirty bytes of text or so">>}.

%% Binaries in a table, one per slot; a new one replaces the oldest.
cache(Name, Size, Bytes, PerS, Filled) ->
    ets:new(Name, [named_table]),
    Entries = fill_cache(Name, Size, Bytes, 0),
    Counter = lab:counter(),
    Replace = fun() ->
        Slot = lab:total(Counter) rem Entries,
        ets:insert(Name, {Slot, lab:binary(Size(Slot))}),
        lab:count(Counter)
    end,
    wear_in(3 * Entries, Replace, Filled),
    at_rate(PerS, Replace).

fill_cache(_, _, Left, Next) when Left =< 0 ->
    Next;
fill_cache(Name, Size, Left, Next) ->
    Entry = lab:binary(Size(Next)),
    ets:insert(Name, {Next, Entry}),
    fill_cache(Name, Size, Left - byte_size(Entry), Next + 1).

%% A server with its state in a map on its heap, which creates some garbage for each request.
server(Bytes, PerS, Filled) ->
    Entries = Bytes div 200,
    put(state, maps:from_list([{Key, entry(Key)} || Key <- lists:seq(1, Entries)])),
    Change = fun() ->
        Key = rand:uniform(Entries),
        put(state, maps:update(Key, entry(Key), get(state)))
    end,
    wear_in(3 * Entries, Change, Filled),
    at_rate(PerS, Change).

%% New memory is not fragmented and a new heap has no history: much is replaced before the lab counts as steady.
wear_in(Times, Replace, Filled) ->
    times(Times, Replace),
    true = erlang:garbage_collect(),
    lab:count(Filled).

at_rate(PerS, Fun) -> lab:at_rate(PerS, fun(Due) -> times(Due, Fun) end).

times(0, _) ->
    ok;
times(Left, Fun) ->
    Fun(),
    times(Left - 1, Fun).

%% About 20 words, and as many that become garbage immediately.
entry(Key) ->
    Fields = [{Field, Key * Field} || Field <- lists:seq(1, 3)],
    {Key, maps:from_list(Fields), erlang:monotonic_time()}.
