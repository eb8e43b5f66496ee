%% Processes that own ETS tables. One creates a table per request and never deletes it; the others own a constant number,
%% or create and delete them.
-module(lab_ets_leak).

-export([start/1, establish/1]).

%% The leak stops here.
-define(MAX_TABLES, 20000).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Fill = lab:int(Context, tables, 1000, 2500),
    LeakPerS = lab:int(Context, leak_per_s, 10, 30),
    ChurnPerS = lab:int(Context, churn_per_s, 10, 30),
    Held = lab:int(Context, held, 60, 150),
    Rows = lab:int(Context, rows, 3, 20),
    [Sick, Holder | Others] = Names = lab:names(Context, owners, lab:int(Context, owners, 3, 6)),
    [SickTable, HolderTable, OtherTable] = lab:names(Context, tables, 3),
    Pid = lab:start(Sick, fun() -> leak(lab:sick(Context), SickTable, Fill, LeakPerS, Rows) end),
    lab:start(Holder, fun() ->
        tables(HolderTable, Held, Rows),
        receive never -> ok end
    end),
    [
        lab:start(Other, fun() ->
            lab:at_rate(ChurnPerS, fun(Due) -> [ets:delete(Table) || Table <- tables(OtherTable, Due, Rows)] end)
        end)
     || Other <- Others
    ],
    case lab:sick(Context) of
        true -> lab:wait_until(filled, fun() -> length(ets:all()) > Fill end);
        false -> lab:pause(1000)
    end,
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => Pid, table => SickTable, owners => {list, lab:shuffle(Context, order, Names)}, holder => Holder,
            held => Held, leak_per_s => LeakPerS, tables => Fill, rows => Rows
        }
    }.

leak(true, Name, Fill, LeakPerS, Rows) ->
    tables(Name, Fill, Rows),
    lab:at_rate(LeakPerS, fun(Due) ->
        length(ets:all()) < ?MAX_TABLES andalso tables(Name, Due, Rows)
    end);
leak(false, Name, _, LeakPerS, Rows) ->
    lab:at_rate(LeakPerS, fun(Due) -> [ets:delete(Table) || Table <- tables(Name, Due, Rows)] end).

tables(Name, Count, Rows) ->
    [
        begin
            Table = ets:new(Name, [set, protected]),
            ets:insert(Table, [{Row, Name} || Row <- lists:seq(1, Rows)]),
            Table
        end
     || _ <- lists:seq(1, Count)
    ].
