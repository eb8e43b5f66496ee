-module(dialer_load).
-export([start/1]).
%% keeps N calls going, each of half a minute to five minutes
start(N) -> spawn(fun() -> register(dialer_load, self()), keep(N, 0) end).
keep(N, Id) ->
    Open = proplists:get_value(active, supervisor:count_children(dialer_call_sup)),
    New = min(250, max(0, N - Open)),
    [{ok, _} = supervisor:start_child(dialer_call_sup, [Id + I, 30 + rand:uniform(270)]) || I <- lists:seq(1, New)],
    timer:sleep(100),
    keep(N, Id + New).
