%% Customers: produce events, and want to see their sums.
-module(rollup_query).
-export([start/0]).

start() ->
    [spawn(fun() -> producer() end) || _ <- lists:seq(1, 20)],
    [spawn(fun() -> reader() end) || _ <- lists:seq(1, 10)],
    ok.

producer() ->
    timer:sleep(80 + rand:uniform(160)),
    rollup_events:add(rand:uniform(60000), api_call, rand:uniform(100)),
    producer().

reader() ->
    timer:sleep(500 + rand:uniform(1000)),
    _ = (catch rollup_hourly:sums()),
    reader().
