%% A table that gains objects all the time and never loses any, one that is larger and does not grow, and one that grows
%% and shrinks again. Healthy: the oldest objects are deleted as new ones are inserted.
-module(lab_ets_growth).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

%% The growth stops here.
-define(MAX_MB, 600).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    BeginMb = lab:int(Context, begin_mb, 50, 90),
    HeldMb = lab:int(Context, held_mb, 80, 120),
    KbPerS = lab:int(Context, kb_per_s, 3000, 5000),
    Fields = lab:int(Context, fields, 20, 80),
    Options = lab:pick(Context, options, [[set], [ordered_set], [set, named_table], [ordered_set, named_table]]),
    Names = [Sick, Held, Breathing] = lab:names(Context, tables, 3),
    Owners = [Writer, Holder, Breather] = lab:names(Context, owners, 3),
    Kb = kilobytes_of_thousand_rows(Fields),
    Rows = fun(Kilobytes) -> Kilobytes * 1000 div Kb end,
    Filled = lab:counter(),
    Begin = fun(Name, Kilobytes) ->
        Table = ets:new(Name, Options),
        {Table, insert(Table, 1, Rows(Kilobytes), Fields)}
    end,
    Pid = lab:start(Writer, fun() ->
        Bound = Rows(BeginMb * ?KB),
        {Table, First} = Begin(Sick, BeginMb * ?KB),
        %% When healthy, all objects are replaced first: the carriers of a new table are not fragmented yet, and their
        %% number still grows.
        Next =
            case lab:sick(Context) of
                true -> First;
                false -> replace(Table, First, 3 * Bound, Rows(KbPerS), Bound, Fields)
            end,
        lab:count(Filled),
        grow(lab:sick(Context), Table, Next, Rows(KbPerS), Bound, Fields)
    end),
    lab:start(Holder, fun() ->
        Begin(Held, HeldMb * ?KB),
        lab:count(Filled),
        receive never -> ok end
    end),
    lab:start(Breather, fun() ->
        {Table, Next} = Begin(Breathing, 10 * ?KB),
        lab:count(Filled),
        breathe(Table, Next, Rows(4 * ?KB), Fields)
    end),
    lab:wait_until(filled, fun() -> lab:total(Filled) =:= 3 end),
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => Pid, table => Sick, tables => {list, lab:shuffle(Context, tables, Names)}, owner => Writer,
            owners => {list, lab:shuffle(Context, owners, Owners)}, held => Held, breathing => Breathing,
            type => hd(Options), named => lists:member(named_table, Options), begin_mb => BeginMb,
            held_mb => HeldMb, kb_per_s => KbPerS, fields => Fields
        }
    }.

%% Inserts objects with consecutive keys; returns the next key.
insert(Table, From, Count, Fields) ->
    lists:foreach(fun(Key) -> ets:insert(Table, row(Key, Fields)) end, lists:seq(From, From + Count - 1)),
    From + Count.

%% Replaces the oldest objects by new ones, one second's worth at a time: more are never due at once.
replace(_, Next, Left, _, _, _) when Left =< 0 ->
    Next;
replace(Table, Next, Left, PerS, Bound, Fields) ->
    _ = insert(Table, Next, PerS, Fields),
    [ets:delete(Table, Key - Bound) || Key <- lists:seq(Next, Next + PerS - 1)],
    replace(Table, Next + PerS, Left - PerS, PerS, Bound, Fields).

row(Key, Fields) -> {Key, unread, lists:seq(Key, Key + Fields - 1)}.

%% Measured, because the table types differ by a few words.
kilobytes_of_thousand_rows(Fields) ->
    Table = ets:new(rows, [set, private]),
    _ = insert(Table, 1, 10000, Fields),
    Bytes = ets:info(Table, memory) * erlang:system_info(wordsize),
    true = ets:delete(Table),
    Bytes div (10 * ?KB).

grow(Sick, Table, Next, PerS, Bound, Fields) ->
    Counter = counters:new(1, []),
    counters:put(Counter, 1, Next),
    lab:at_rate(PerS, fun(Due) ->
        From = counters:get(Counter, 1),
        Full = ets:info(Table, memory) * erlang:system_info(wordsize) >= ?MAX_MB * ?MB,
        case Sick of
            true when Full ->
                ok;
            true ->
                counters:put(Counter, 1, insert(Table, From, Due, Fields));
            false ->
                counters:put(Counter, 1, insert(Table, From, Due, Fields)),
                [ets:delete(Table, Key - Bound) || Key <- lists:seq(From, From + Due - 1)]
        end
    end).

%% Full and half empty again every two seconds.
breathe(Table, Next, Rows, Fields) ->
    lab:forever(fun() ->
        _ = insert(Table, Next, Rows, Fields),
        lab:pause(1000),
        [ets:delete(Table, Key) || Key <- lists:seq(Next, Next + Rows - 1)],
        lab:pause(1000)
    end).
