%% Importers compute nearly all the time, one per scheduler, and clients send small requests to servers. The importers
%% have priority high, so the servers wait for a scheduler. Healthy: they have priority low.
-module(lab_priorities).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Servers = lab:names(Context, server, lab:int(Context, servers, 20, 40)),
    Importers = lab:names(Context, importer, lab:cores(Context)),
    SharePct = lab:int(Context, share_pct, 88, 96),
    PerS = lab:int(Context, requests_per_s, 20, 40),
    Priority = case lab:sick(Context) of true -> high; false -> low end,
    UnitsPerMs = lab:calibrate(),
    [
        lab:start(Server, fun() -> lab:at_rate(PerS, fun(Due) -> lab:work(UnitsPerMs, Due * 200) end) end)
     || Server <- Servers
    ],
    Steps = lab:counter(),
    [
        lab:start(Importer, fun() ->
            process_flag(priority, Priority),
            lab:load(UnitsPerMs, SharePct, 500, Steps)
        end)
     || Importer <- Importers
    ],
    lab:wait_until(imported, fun() -> lab:total(Steps) > 1000 end),
    #{
        sick => lab:culprit(Context, Importers),
        details => #{importers => {list, Importers}, servers => {list, Servers}, share_pct => SharePct, requests_per_s => PerS}
    }.
