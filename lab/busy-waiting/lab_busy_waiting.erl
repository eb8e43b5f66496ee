%% An echo server whose handlers wait in gen_tcp:recv, under many small requests from outside.
%%
%% Between two requests a scheduler has no work and busy-waits before it sleeps; the poll thread wakes it up again soon
%% after. With {active, true} there would be no effect: then the scheduler itself sleeps in the poll set.
-module(lab_busy_waiting).

-export([start/1, establish/1, drive/1, drive/2]).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    Connections = lab:int(Context, connections, 36, 44),
    Rate = lab:int(Context, rate, 2300, 2800),
    Bytes = lab:int(Context, bytes, 16, 200),
    Served = lab:counter(),
    {ok, Listen} = gen_tcp:listen(0, [
        binary, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 128}, {nodelay, true}
    ]),
    {ok, Port} = inet:port(Listen),
    Acceptor = lab:name(Context, acceptor),
    lab:start(Acceptor, fun() -> accept(Listen, Bytes, Served) end),
    Control = lab:await_driver(),
    lab:send(Control, #{port => Port, connections => Connections, rate => Rate, bytes => Bytes}),
    lab:wait_until(requests_arrive, fun() -> lab:per_second(Served, 1000) * 10 >= Rate * 7 end),
    #{
        sick => none,
        details => #{
            acceptor => Acceptor, port => Port, connections => Connections, requests_per_s => Rate,
            request_bytes => Bytes
        },
        driver => Control
    }.

accept(Listen, Bytes, Served) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Handler = lab:start(fun() -> receive go -> echo(Socket, Bytes, Served) end end),
    ok = gen_tcp:controlling_process(Socket, Handler),
    Handler ! go,
    accept(Listen, Bytes, Served).

echo(Socket, Bytes, Served) ->
    {ok, Request} = gen_tcp:recv(Socket, Bytes),
    ok = gen_tcp:send(Socket, Request),
    lab:count(Served),
    echo(Socket, Bytes, Served).

%% In the second VM: every connection sends at its own random time. Timers fire at whole milliseconds. The work before
%% each request, on the only scheduler, spreads requests that are due together, because a server that gets them at once
%% goes to sleep only once.
drive(_, Control) ->
    #{port := Port, connections := Connections, rate := Rate, bytes := Bytes} = lab:recv(Control),
    MeanMs = 1000 * Connections div Rate,
    Request = binary:copy(<<"r">>, Bytes),
    UnitsPerMs = lab:calibrate(),
    [lab:start(fun() -> connect(Port, Request, MeanMs, UnitsPerMs) end) || _ <- lists:seq(1, Connections)],
    ok.

connect(Port, Request, MeanMs, UnitsPerMs) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    lab:forever(fun() ->
        lab:pause(rand:uniform(2 * MeanMs) - 1),
        lab:work(UnitsPerMs, 220),
        ok = gen_tcp:send(Socket, Request),
        {ok, Request} = gen_tcp:recv(Socket, byte_size(Request))
    end).
