%% A node with a few processes and no work.
-module(lab_healthy_idle).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Names = lab:names(Context, processes, lab:int(Context, processes, 5, 40)),
    TickMs = lab:int(Context, tick_ms, 500, 2000),
    [lab:start(Name, fun() -> lab:forever(fun() -> lab:pause(TickMs) end) end) || Name <- Names],
    #{sick => none, details => #{processes => {list, Names}, tick_ms => TickMs}}.
