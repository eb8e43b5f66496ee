%% A table of prices as one persistent term, which a process replaces at every change, while hundreds of sessions read it.
%% All processes are scanned for each replaced term before it is freed. Healthy: the same table is in ETS, and changes as
%% often.
-module(lab_persistent_term_churn).

-export([start/1, establish/1]).

%% Changes made before the lab is ready.
-define(WARMUP_CHANGES, 30).

%% Garbage that each session creates before that, in lists of a thousand words: enough for several GCs.
-define(WARMUP_LISTS, 30).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Sessions = lab:int(Context, sessions, 1500, 2500),
    Rows = lab:int(Context, rows, 200, 600),
    Changes = lab:int(Context, changes_per_s, 15, 30),
    PerS = lab:int(Context, reads_per_s, 300, 600),
    State = lab:int(Context, state_words, 2000, 4000),
    [Key, Writer | Sources] = lab:names(Context, names, 4),
    put_table(Context, Key, table(Rows, 0)),
    Begun = lab:counter(),
    Pids = list_to_tuple([
        lab:start(fun() -> session(Context, Key, lists:seq(1, State div 2), Begun) end)
     || _ <- lists:seq(1, Sessions)
    ]),
    lab:wait_until(sessions, fun() -> lab:total(Begun) =:= Sessions end),
    Answered = lab:counter(),
    [
        lab:start(Source, fun() ->
            lab:at_rate(PerS, fun(Due) ->
                [element(rand:uniform(Sessions), Pids) ! {read, rand:uniform(Rows), Answered} || _ <- lists:seq(1, Due)]
            end)
        end)
     || Source <- Sources
    ],
    Changed = lab:counter(),
    lab:start(Writer, fun() ->
        lab:at_rate(Changes, fun(Due) ->
            [
                begin
                    put_table(Context, Key, table(Rows, lab:total(Changed))),
                    lab:count(Changed)
                end
             || _ <- lists:seq(1, Due)
            ]
        end)
    end),
    lab:wait_until(changes, fun() -> lab:total(Changed) >= ?WARMUP_CHANGES end),
    lab:wait_until(reads, fun() -> lab:total(Answered) > PerS end),
    #{
        sick => none,
        details => #{
            key => Key, writer => Writer, sources => {list, Sources}, sessions => Sessions, rows => Rows,
            changes_per_s => Changes, changed_per_s => lab:per_second(Changed, 2000), state_words => State
        }
    }.

table(Rows, Version) -> maps:from_list([{Row, {Row, Version, [Row, Version]}} || Row <- lists:seq(1, Rows)]).

put_table(Context, Key, Table) ->
    case lab:sick(Context) of
        true ->
            persistent_term:put(Key, Table);
        false ->
            ets:whereis(Key) =/= undefined orelse lab:table(Key),
            ets:insert(Key, maps:to_list(Table))
    end.

row(Context, Key, Row) ->
    case lab:sick(Context) of
        true ->
            maps:get(Row, persistent_term:get(Key));
        false ->
            [{_, Value}] = ets:lookup(Key, Row),
            Value
    end.

session(Context, Key, State, Begun) ->
    %% Heaps reach their final size: reading a persistent term creates no garbage, and messages create little.
    [500 = length(lists:seq(1, 500)) || _ <- lists:seq(1, ?WARMUP_LISTS)],
    {1, _, _} = row(Context, Key, 1),
    lab:count(Begun),
    answer(Context, Key, State, none).

%% The session keeps the last row as it is in the table: a persistent term is not copied.
answer(Context, Key, State, _) ->
    receive
        {read, Row, Answered} ->
            Kept = row(Context, Key, Row),
            lab:count(Answered),
            answer(Context, Key, State, Kept)
    end.
