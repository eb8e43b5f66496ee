%% Readers of ETS tables with read_concurrency, on all schedulers, moderately busy.
-module(lab_healthy_ets_readers).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Tables = lab:names(Context, tables, lab:int(Context, tables, 3, 8)),
    Rows = lab:int(Context, rows, 5000, 50000),
    SharePct = lab:int(Context, share_pct, 50, 65),
    Schedulers = erlang:system_info(schedulers_online),
    Owner = lab:name(Context, owner),
    Ready = lab:counter(),
    lab:start(Owner, fun() ->
        [ets:new(Table, [named_table, public, set, {read_concurrency, true}]) || Table <- Tables],
        [ets:insert(Table, {Row, Row}) || Table <- Tables, Row <- lists:seq(1, Rows)],
        lab:count(Ready),
        receive never -> ok end
    end),
    lab:wait_until(filled, fun() -> lab:total(Ready) =:= 1 end),
    %% Four per scheduler, each with a quarter of its share.
    Readers = lab:names(Context, readers, 4 * Schedulers),
    [lab:start(Reader, fun() -> reader(list_to_tuple(Tables), Rows, SharePct) end) || Reader <- Readers],
    lab:pause(1000),
    #{
        sick => none,
        details => #{
            tables => {list, Tables}, owner => Owner, rows => Rows, readers => length(Readers),
            share_pct => SharePct
        }
    }.

reader(Tables, Rows, SharePct) ->
    BusyMs = 1 + rand:uniform(4),
    read_until(erlang:monotonic_time(millisecond) + BusyMs, Tables, Rows),
    lab:pause(BusyMs * (400 - SharePct) div SharePct),
    reader(Tables, Rows, SharePct).

read_until(End, Tables, Rows) ->
    [[_] = ets:lookup(element(rand:uniform(tuple_size(Tables)), Tables), rand:uniform(Rows)) || _ <- lists:seq(1, 200)],
    erlang:monotonic_time(millisecond) < End andalso read_until(End, Tables, Rows).
