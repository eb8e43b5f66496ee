%% Gives back each line, after it has added up LIST numbers, 300 of them if nobody says it; and where PULSES is set, computes in four
%% processes at once, each PULSES ms of CPU time in 300 ms, beside the lines.
-module(echo).

-export([start/0]).

start() ->
    case os:getenv("PULSES") of
        false -> ok;
        Ms ->
            Steps = list_to_integer(Ms) * steps_per_ms(),
            [spawn_link(fun() -> pulse(Steps) end) || _ <- lists:seq(1, 4)]
    end,
    {ok, Listen} = gen_tcp:listen(9191, [
        binary, {ip, {127, 0, 0, 1}}, {active, false}, {packet, line}, {reuseaddr, true}, {nodelay, true}, {backlog, 1024}
    ]),
    accept(Listen, list_to_integer(os:getenv("LIST", "300"))).

accept(Listen, Length) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn(fun() -> receive go -> lines(Socket, Length) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen, Length).

lines(Socket, Length) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Line} ->
            _ = lists:sum(lists:seq(1, Length)),
            ok = gen_tcp:send(Socket, Line),
            lines(Socket, Length);
        _ ->
            gen_tcp:close(Socket)
    end.

pulse(Steps) ->
    Now = erlang:monotonic_time(millisecond),
    timer:sleep(300 - Now rem 300),
    compute(Steps),
    pulse(Steps).

%% CPU time cannot be asked for, so work is counted; how much a millisecond is, is found out while nothing else runs.
steps_per_ms() ->
    {Us, ok} = timer:tc(fun() -> compute(1000000) end),
    1000000000 div Us.

compute(0) -> ok;
compute(N) -> _ = erlang:phash2(N), compute(N - 1).
