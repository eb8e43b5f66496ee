%% Independent workers that need more than one CPU and less than two. Sick: the VM was started with +S 1:1, from the flags
%% of a smaller host; all of them share one CPU and the next one is idle. Healthy: there are two schedulers.
-module(lab_too_few_schedulers).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Units = lab:calibrate(),
    Workers = lab:demand(Context, workers, 6, 12),
    %% Demand of all of them together, in per cent of a CPU.
    Wanted = lab:demand(Context, wanted_pct, 130, 165),
    %% Period of each worker, so that they do not all sleep at once.
    CycleMs = lab:int(Context, cycle_ms, 80, 150),
    Names = lab:names(Context, workers, Workers),
    Done = lab:counter(),
    [lab:start(Name, fun() -> lab:load(Units, Wanted div Workers, CycleMs, Done) end) || Name <- Names],
    lab:wait_until(work, fun() -> lab:total(Done) > 1000 end),
    #{
        sick => none,
        details => #{
            workers => {list, Names}, wanted_pct => Wanted, cycle_ms => CycleMs,
            schedulers => erlang:system_info(schedulers_online), steps_per_s => lab:per_second(Done, 2000)
        }
    }.
