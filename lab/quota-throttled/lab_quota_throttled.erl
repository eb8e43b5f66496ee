%% Workers that together need more CPU time than the cgroup's quota grants. Sick: there is one scheduler only, so the
%% quota alone is the cause, not the number of schedulers.
-module(lab_quota_throttled).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 3, 5),
    DemandPct = lab:int(Context, demand_pct, 80, 92),
    CycleMs = lab:int(Context, cycle_ms, 80, 150),
    Names = lab:names(Context, workers, Workers),
    UnitsPerMs = lab:calibrate(),
    Steps = lab:counter(),
    [lab:start(Name, fun() -> lab:load(UnitsPerMs, DemandPct div Workers, CycleMs, Steps) end) || Name <- Names],
    %% A step is a millisecond of CPU time: 10 steps per second are one per cent of a CPU.
    Reached = fun() -> lab:per_second(Steps, 2000) div 10 end,
    case lab:sick(Context) of
        true -> lab:wait_until(held_back, fun() -> Reached() * 10 < DemandPct * 7 end);
        false -> lab:wait_until(working, fun() -> Reached() > 0 end)
    end,
    #{
        sick => none,
        details => #{workers => {list, Names}, demand_pct => DemandPct, cycle_ms => CycleMs}
    }.
