%% Workers started with the option {scheduler, N}, in the belief that this keeps their caches warm: the VM never migrates
%% them, so they wait for one scheduler while the other sleeps. Healthy: the same workers without the option.
-module(lab_scheduler_imbalance).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Units = lab:calibrate(),
    Workers = lab:demand(Context, workers, 6, 10),
    %% Demand of all of them together, in per cent of a CPU.
    Wanted = lab:int(Context, wanted_pct, 125, 160),
    Scheduler = lab:int(Context, scheduler, 1, erlang:system_info(schedulers)),
    Names = lab:names(Context, workers, Workers),
    Options = [{scheduler, Scheduler} || lab:sick(Context)],
    Done = lab:counter(),
    [
        proc_lib:spawn_opt(
            fun() ->
                true = register(Name, self()),
                lab:load(Units, Wanted div Workers, 100, Done)
            end,
            [link | Options]
        )
     || Name <- Names
    ],
    lab:wait_until(work, fun() -> lab:total(Done) > 1000 end),
    #{
        sick => none,
        details => #{
            workers => {list, Names}, wanted_pct => Wanted,
            scheduler => case lab:sick(Context) of true -> Scheduler; false -> none end,
            steps_per_s => lab:per_second(Done, 2000)
        }
    }.
