%% The phone switches: 48 connections, each sends a batch of 260 call records some 17 times a second.
-module(switches).
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("GATEWAY_PORT")),
    T = counters:new(3, []),
    [spawn_link(fun() -> switch(Port, T) end) || _ <- lists:seq(1, 48)],
    report(T).

switch(Port, T) ->
    timer:sleep(rand:uniform(1000)),
    {ok, S} = gen_tcp:connect({127,0,0,1}, Port, [binary, {packet, 2}, {active, false}, {nodelay, true}]),
    Reqs = list_to_tuple([request() || _ <- lists:seq(1, 5)]),
    loop(S, T, Reqs).

loop(S, T, Reqs) ->
    timer:sleep(30 + rand:uniform(50)),
    {Us, _} = timer:tc(fun() ->
        ok = gen_tcp:send(S, element(rand:uniform(5), Reqs)),
        {ok, _} = gen_tcp:recv(S, 0, 10000)
    end),
    counters:add(T, 1, 1),
    counters:add(T, 2, Us),
    loop(S, T, Reqs).

request() ->
    [["49301", integer_to_list(1000000 + rand:uniform(900000)), $,, integer_to_list(100000000 + rand:uniform(800000000)), $,,
      integer_to_list(rand:uniform(900)), $,, "1700000000\n"] || _ <- lists:seq(1, 260)].

report(T) ->
    timer:sleep(2000),
    file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~b requests, ~b us on average~n", [counters:get(T, 1), counters:get(T, 2) div max(1, counters:get(T, 1))])),
    report(T).
