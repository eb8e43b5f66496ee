%% Counters of all processes in a few objects of one ETS table without write_concurrency: each update takes the lock of
%% the whole table, and the schedulers wait for each other. Healthy: an array of atomic counters per scheduler. Both
%% variants have the same number of events; when sick, more than can be counted.
-module(lab_lock_contention).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Processes = lab:demand(Context, processes, 24, 40),
    Keys = lab:int(Context, keys, 3, 6),
    PerS = lab:demand(Context, events_per_s, 3000000, 4000000),
    [Owner, Table] = lab:names(Context, table, 2),
    Counted = lab:counter(),
    Sick = lab:sick(Context),
    Ready = lab:counter(),
    lab:start(Owner, fun() ->
        Table = ets:new(Table, [named_table, public, set]),
        [ets:insert(Table, {Key, 0}) || Key <- lists:seq(1, Keys)],
        lab:count(Ready),
        receive never -> ok end
    end),
    lab:wait_until(table, fun() -> lab:total(Ready) =:= 1 end),
    Counters = counters:new(Keys, [write_concurrency]),
    Bump =
        case Sick of
            true -> fun(Key) -> ets:update_counter(Table, Key, 1) end;
            false -> fun(Key) -> counters:add(Counters, Key, 1) end
        end,
    [
        lab:start(fun() ->
            lab:at_rate(PerS div Processes, fun(Due) ->
                count(Bump, (N + Due) rem Keys + 1, Due),
                counters:add(Counted, 1, Due)
            end)
        end)
     || N <- lists:seq(1, Processes)
    ],
    lab:wait_until(counting, fun() -> lab:total(Counted) > PerS div 20 end),
    #{
        sick => none,
        details => #{
            table => Table, owner => Owner, keys => Keys, processes => Processes, events_per_s => PerS
        }
    }.

count(_, _, 0) -> ok;
count(Bump, Key, Left) ->
    Bump(Key),
    count(Bump, Key, Left - 1).
