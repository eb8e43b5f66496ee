%% A service terminates the VM after a few seconds, and a shell restarts it. Healthy: it keeps running.
-module(lab_restart_loop).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    LifeMs = lab:int(Context, life_ms, 2200, 2800),
    JobsPerS = lab:int(Context, jobs_per_s, 20, 80),
    [Service | Others] = Names = lab:names(Context, services, lab:int(Context, services, 3, 6)),
    Done = lab:counter(),
    [lab:start(Name, fun() -> lab:at_rate(JobsPerS, fun(_) -> lab:count(Done) end) end) || Name <- Others],
    Pid = lab:start(Service, fun() -> serve(Context, LifeMs, JobsPerS, Done) end),
    lab:wait_until(worked, fun() -> lab:total(Done) > 10 end),
    #{sick => none, details => #{pid => Pid, services => {list, Names}, life_ms => LifeMs, jobs_per_s => JobsPerS}}.

serve(Context, LifeMs, JobsPerS, Done) ->
    case lab:sick(Context) of
        %% Immediately, like an OOM kill: nothing is written.
        true -> erlang:send_after(LifeMs, self(), enough);
        false -> ok
    end,
    lab:start(fun() -> lab:at_rate(JobsPerS, fun(_) -> lab:count(Done) end) end),
    receive
        enough -> erlang:halt(1, [{flush, false}])
    end.
