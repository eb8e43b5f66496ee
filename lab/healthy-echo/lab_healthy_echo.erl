%% An echo server at about 30 % scheduler utilization: it does some work for each request, receives in active mode, and
%% keeps up.
-module(lab_healthy_echo).

-export([start/1, establish/1, drive/1, drive/2]).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    Connections = lab:int(Context, connections, 30, 60),
    Rate = lab:int(Context, rate, 600, 1000),
    LoadPct = lab:int(Context, load_pct, 28, 32),
    UnitsPerMs = lab:calibrate(),
    WorkUs = erlang:system_info(schedulers_online) * 10000 * LoadPct div Rate,
    Served = lab:counter(),
    {ok, Listen} = gen_tcp:listen(0, [
        binary, {active, false}, {packet, 2}, {ip, {127, 0, 0, 1}}, {backlog, 128}, {nodelay, true}
    ]),
    {ok, Port} = inet:port(Listen),
    Acceptor = lab:name(Context, acceptor),
    lab:start(Acceptor, fun() -> accept(Listen, UnitsPerMs, WorkUs, Served) end),
    Control = lab:await_driver(),
    lab:send(Control, #{port => Port, connections => Connections, rate => Rate}),
    lab:wait_until(requests_arrive, fun() -> lab:per_second(Served, 1000) * 10 >= Rate * 7 end),
    #{
        sick => none,
        details => #{
            acceptor => Acceptor, port => Port, connections => Connections, requests_per_s => Rate,
            work_us => WorkUs
        },
        driver => Control
    }.

accept(Listen, UnitsPerMs, WorkUs, Served) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Handler = lab:start(fun() -> handler(Socket, UnitsPerMs, WorkUs, Served) end),
    ok = gen_tcp:controlling_process(Socket, Handler),
    ok = inet:setopts(Socket, [{active, true}]),
    accept(Listen, UnitsPerMs, WorkUs, Served).

handler(Socket, UnitsPerMs, WorkUs, Served) ->
    receive
        {tcp, Socket, Request} ->
            lab:work(UnitsPerMs, WorkUs),
            ok = gen_tcp:send(Socket, Request),
            lab:count(Served),
            handler(Socket, UnitsPerMs, WorkUs, Served)
    end.

%% In the second VM.
drive(_, Control) ->
    #{port := Port, connections := Connections, rate := Rate} = lab:recv(Control),
    MeanMs = 1000 * Connections div Rate,
    [lab:start(fun() -> connect(Port, MeanMs) end) || _ <- lists:seq(1, Connections)],
    ok.

connect(Port, MeanMs) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {packet, 2}, {active, false}, {nodelay, true}]),
    lab:forever(fun() ->
        lab:pause(rand:uniform(2 * MeanMs) - 1),
        ok = gen_tcp:send(Socket, <<"a small request">>),
        {ok, _} = gen_tcp:recv(Socket, 0)
    end).
