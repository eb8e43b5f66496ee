%% Workers that would have enough CPU time without neighbours on the same CPU. The runner starts the neighbours.
-module(lab_cpu_starved).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 2, 4),
    DemandPct = lab:int(Context, demand_pct, 55, 65),
    CycleMs = lab:int(Context, cycle_ms, 60, 120),
    Names = lab:names(Context, workers, Workers),
    UnitsPerMs = lab:calibrate(),
    Steps = lab:counter(),
    [lab:start(Name, fun() -> lab:load(UnitsPerMs, DemandPct div Workers, CycleMs, Steps) end) || Name <- Names],
    %% A step is a millisecond of CPU time: 10 steps per second are one per cent of a CPU.
    Reached = fun() -> lab:per_second(Steps, 2000) div 10 end,
    case lab:sick(Context) of
        true -> lab:wait_until(held_back, fun() -> Reached() * 10 < DemandPct * 8 end);
        false -> lab:wait_until(working, fun() -> Reached() > 0 end)
    end,
    #{
        sick => none,
        details => #{workers => {list, Names}, demand_pct => DemandPct, cycle_ms => CycleMs}
    }.
