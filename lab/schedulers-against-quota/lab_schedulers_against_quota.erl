%% Workers that wake up together and compute for a while. On four schedulers they use up in half a period or less what the
%% quota of one CPU allows for all of it, and then all threads are stopped; on one scheduler the same work is never
%% throttled.
-module(lab_schedulers_against_quota).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 4, 6),
    CycleMs = lab:int(Context, cycle_ms, 280, 400),
    %% In per cent of one CPU, and below 100: the quota is enough for the work.
    DemandPct = lab:int(Context, demand_pct, 66, 78),
    BurstMs = CycleMs * DemandPct div 100 div Workers,
    Names = lab:names(Context, workers, Workers),
    UnitsPerMs = lab:calibrate(),
    Bursts = lab:counter(),
    Pids = [lab:start(Name, fun() -> worker(UnitsPerMs, BurstMs, Bursts) end) || Name <- Names],
    Clock = lab:name(Context, clock),
    lab:start(Clock, fun() ->
        lab:forever(fun() ->
            [Pid ! burst || Pid <- Pids],
            lab:pause(CycleMs)
        end)
    end),
    lab:wait_until(bursts, fun() -> lab:total(Bursts) >= 5 * Workers end),
    #{
        sick => none,
        details => #{
            workers => {list, Names}, clock => Clock, demand_pct => DemandPct, burst_ms => BurstMs,
            cycle_ms => CycleMs
        }
    }.

worker(UnitsPerMs, BurstMs, Bursts) ->
    receive burst -> ok end,
    lab:work(UnitsPerMs, BurstMs * 1000),
    lab:count(Bursts),
    %% A burst that arrived while this one was still busy is dropped: the work must not pile up.
    drop_bursts(),
    worker(UnitsPerMs, BurstMs, Bursts).

drop_bursts() ->
    receive burst -> drop_bursts()
    after 0 -> ok
    end.
