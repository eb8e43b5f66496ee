%% Two VMs with one scheduler each, both bound. Binding starts with the first CPU, so both use the same one and wait for
%% each other while the next CPU is idle. Healthy: this VM is not bound, and the kernel moves it to a free CPU.
-module(lab_bound_schedulers).

-export([start/1, establish/1, neighbour/1, drive/2]).

start(Args) -> lab:run(?MODULE, Args).

neighbour(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    Control = lab:await_driver(),
    Units = lab:calibrate(),
    Workers = lab:names(Context, workers, lab:int(Context, workers, 3, 6)),
    Wanted = lab:int(Context, wanted_pct, 60, 75),
    Done = lab:counter(),
    [lab:start(Worker, fun() -> lab:load(Units, Wanted div length(Workers), 100, Done) end) || Worker <- Workers],
    lab:wait_until(work, fun() -> lab:total(Done) > 500 end),
    #{
        sick => none,
        driver => Control,
        details => #{
            workers => {list, Workers}, wanted_pct => Wanted, steps_per_s => lab:per_second(Done, 2000)
        }
    }.

%% The other VM: the same kind of work.
drive(Context, _) ->
    Units = lab:calibrate(),
    Wanted = lab:int(Context, neighbour_pct, 60, 75),
    Done = lab:counter(),
    [lab:start(fun() -> lab:load(Units, Wanted div 3, 100, Done) end) || _ <- lists:seq(1, 3)].
