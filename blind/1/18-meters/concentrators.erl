%% The concentrators of the town's quarters: every 4 seconds one of them delivers what its meters have sent.
-module(concentrators).
-export([start/0]).

start() ->
    spawn(fun() -> loop(0) end),
    ok.

loop(N) ->
    Quarter = N rem 10,
    [meters_session:frame(1 + Quarter * 3000 + I rem 3000, rand:uniform(400)) || I <- lists:seq(1, 12000)],
    timer:sleep(4000),
    loop(N + 1).
