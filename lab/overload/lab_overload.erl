%% Each request is a process that computes for several milliseconds. More requests arrive than two CPUs can handle; when
%% healthy, half as many as they can handle.
-module(lab_overload).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    RequestUs = lab:int(Context, request_us, 4000, 12000),
    Pct = case lab:sick(Context) of true -> lab:int(Context, offered_pct, 110, 120); false -> 45 end,
    PerS = lab:cores(Context) * 10000 * Pct div RequestUs,
    UnitsPerMs = lab:calibrate(),
    Done = lab:counter(),
    lab:start(lab:name(Context, gate), fun() ->
        lab:at_rate(PerS, fun(Due) ->
            [lab:start(fun() -> lab:work(UnitsPerMs, RequestUs), lab:count(Done) end) || _ <- lists:seq(1, Due)]
        end)
    end),
    lab:wait_until(done, fun() -> lab:total(Done) > 2 * PerS end),
    #{sick => none, details => #{requests_per_s => PerS, request_us => RequestUs, offered_pct => Pct}}.
