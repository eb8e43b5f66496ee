%% A server that looks each client up, which takes time, before it talks to it. Sick: the only acceptor does that itself,
%% and meanwhile the next client waits in the kernel; more arrive than it can handle. Healthy: it hands each one over
%% immediately, or there are enough acceptors; which of the two is drawn. Clients connect, ask, get an answer and close;
%% then each pauses and connects again.
-module(lab_scarce_acceptors).

-export([start/1, establish/1]).

%% A client without an answer within this time gives up and connects again.
-define(PATIENCE_MS, 15000).
-define(LOCALHOST, {127, 0, 0, 1}).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    LookUpMs = lab:int(Context, look_up_ms, 25, 60),
    %% In per cent of what one acceptor can handle.
    LoadPct = lab:int(Context, load_pct, 200, 400),
    Backlog = lab:int(Context, backlog, 64, 256),
    PauseMs = lab:int(Context, pause_ms, 800, 1500),
    %% When sick, some of them pause and all others wait.
    Clients = LoadPct * PauseMs div (100 * LookUpMs) + lab:int(Context, more_clients, 30, 80),
    Name = lab:name(Context, server),
    HandsOver = lab:int(Context, hands_over, 0, 1) =:= 1,
    {Listen, Port} = listen(Context, Backlog),
    case {lab:sick(Context), HandsOver} of
        {true, _} ->
            acceptor(Name, Listen, fun(Socket) -> serve(Socket, LookUpMs) end);
        {false, true} ->
            acceptor(Name, Listen, fun(Socket) -> hand_over(Socket, LookUpMs) end);
        {false, false} ->
            %% Three times the number of concurrent lookups.
            Acceptors = 4 + 3 * Clients * LookUpMs div PauseMs,
            [acceptor(none, Listen, fun(Socket) -> serve(Socket, LookUpMs) end) || _ <- lists:seq(1, Acceptors)]
    end,
    [Begun, Ended] = [lab:counter(), lab:counter()],
    [lab:start(fun() -> lab:forever(fun() -> visit(Port, Begun, Ended, PauseMs) end) end) || _ <- lists:seq(1, Clients)],
    PausesInAll = Clients * 1000 div PauseMs,
    case lab:sick(Context) of
        true ->
            lab:wait_until(clients_wait, fun() -> lab:total(Begun) - lab:total(Ended) > Clients div 3 end),
            lab:wait_until(clients_are_taken, fun() -> lab:per_second(Ended, 2000) > 500 div LookUpMs end);
        false ->
            lab:wait_until(clients_are_taken, fun() -> lab:per_second(Ended, 2000) > PausesInAll * 7 div 10 end)
    end,
    #{
        sick => lab:culprit(Context, list_to_atom("127.0.0.1:" ++ integer_to_list(Port))),
        details => #{
            port => Port, server => Name, look_up_ms => LookUpMs, clients => Clients, pause_ms => PauseMs,
            backlog => Backlog, hands_over => HandsOver
        }
    }.

%% Some of the ports below the ephemeral range may be in use.
listen(Context, Backlog) -> listen(lab:int(Context, port, 20000, 29000), Backlog, 100).

listen(Port, Backlog, Tries) ->
    Options = [binary, {packet, line}, {active, false}, {ip, ?LOCALHOST}, {backlog, Backlog}, {reuseaddr, true}],
    case gen_tcp:listen(Port, Options) of
        {ok, Listen} -> {Listen, Port};
        {error, eaddrinuse} when Tries > 0 -> listen(Port + 1, Backlog, Tries - 1)
    end.

acceptor(Name, Listen, Take) ->
    lab:start(Name, fun() ->
        lab:forever(fun() ->
            {ok, Socket} = gen_tcp:accept(Listen),
            Take(Socket)
        end)
    end).

hand_over(Socket, LookUpMs) ->
    Pid = lab:start(fun() ->
        receive
            yours -> serve(Socket, LookUpMs)
        end
    end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! yours.

%% A client that gave up meanwhile has closed its socket.
serve(Socket, LookUpMs) ->
    lab:pause(LookUpMs),
    _ = gen_tcp:send(Socket, "welcome\n"),
    ok = gen_tcp:close(Socket).

%% Pauses differ, otherwise all clients would connect at the same time again and again.
visit(Port, Begun, Ended, PauseMs) ->
    lab:pause(PauseMs div 2 + rand:uniform(PauseMs)),
    lab:count(Begun),
    ask(Port),
    lab:count(Ended).

%% The kernel retries a dropped connection.
ask(Port) ->
    case gen_tcp:connect(?LOCALHOST, Port, [binary, {packet, line}, {active, false}], ?PATIENCE_MS) of
        {ok, Socket} ->
            _ = gen_tcp:recv(Socket, 0, ?PATIENCE_MS),
            ok = gen_tcp:close(Socket);
        {error, _} ->
            ok
    end.
