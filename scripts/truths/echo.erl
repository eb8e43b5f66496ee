%% Echoes each line after summing LIST numbers (default 300). If PULSES is set, four additional processes use PULSES ms of CPU time each,
%% all at the same moment, every 300 ms.
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

%% A process cannot read its own CPU time, so work is measured in steps, which are calibrated before anything else runs.
steps_per_ms() ->
    {Us, ok} = timer:tc(fun() -> compute(1000000) end),
    1000000000 div Us.

compute(0) -> ok;
compute(N) -> _ = erlang:phash2(N), compute(N - 1).
