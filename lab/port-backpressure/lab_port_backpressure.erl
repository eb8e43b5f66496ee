%% Hubs that send their messages to all of their clients over TCP, one client after the other. One client of the sick hub
%% does not read: when the kernel's buffers and the socket's driver are full, the hub blocks in gen_tcp:send, and its
%% other clients get nothing. Healthy: a send has a time-out, after which the client is dropped.
-module(lab_port_backpressure).

-export([start/1, establish/1]).

%% Above this queue length a hub gets no more messages.
-define(MAX_QUEUE_LEN, 200000).
%% Kernel buffer of each socket, in bytes: small, so that it fills soon.
-define(BUFFER_BYTES, 16384).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Hubs = lab:int(Context, hubs, 2, 4),
    Clients = lab:int(Context, clients, 4, 8),
    PerS = lab:int(Context, messages_per_s, 150, 400),
    Bytes = lab:int(Context, message_bytes, 400, 1500),
    Limit =
        case lab:sick(Context) of
            true -> [];
            false -> [{send_timeout, 2000}, {send_timeout_close, true}]
        end,
    Names = lab:names(Context, hubs, Hubs),
    Sick = lab:pick(Context, which, Names),
    Dropped = lab:counter(),
    [hub(Name, Clients, Limit, Name =:= Sick, Dropped) || Name <- Names],
    [lab:start(fun() -> feed(Name, PerS, binary:copy(<<"m">>, Bytes)) end) || Name <- Names],
    case lab:sick(Context) of
        true -> lab:wait_until(hub_blocked, fun() -> queue_len(Sick) > 3 * PerS end);
        false -> lab:wait_until(hub_sends, fun() -> lab:total(Dropped) =:= 1 andalso queue_len(Sick) < PerS div 10 end)
    end,
    #{
        sick => lab:culprit(Context, Sick),
        details => #{hubs => {list, Names}, clients => Clients, messages_per_s => PerS, message_bytes => Bytes}
    }.

hub(Name, Clients, Limit, HasLazy, Dropped) ->
    Creator = self(),
    Pid = lab:start(Name, fun() ->
        Options = [binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}, {sndbuf, ?BUFFER_BYTES} | Limit],
        {ok, Listen} = gen_tcp:listen(0, Options),
        {ok, Port} = inet:port(Listen),
        Sockets = [connection(Listen, Port, HasLazy andalso N =:= Clients) || N <- lists:seq(1, Clients)],
        Creator ! {self(), connected},
        send_all(Sockets, Dropped)
    end),
    receive {Pid, connected} -> ok end.

connection(Listen, Port, IsLazy) ->
    lab:start(fun() -> client(Port, IsLazy) end),
    {ok, Socket} = gen_tcp:accept(Listen),
    Socket.

client(Port, IsLazy) ->
    {ok, Socket} = gen_tcp:connect(
        {127, 0, 0, 1}, Port, [binary, {packet, 4}, {active, false}, {recbuf, ?BUFFER_BYTES}]
    ),
    case IsLazy of
        true -> receive never -> Socket end;
        false -> lab:forever(fun() -> {ok, _} = gen_tcp:recv(Socket, 0) end)
    end.

send_all(Sockets, Dropped) ->
    receive
        {send, Message} ->
            Left = [Socket || Socket <- Sockets, is_sent(Socket, Message, Dropped)],
            send_all(Left, Dropped)
    end.

is_sent(Socket, Message, Dropped) ->
    case gen_tcp:send(Socket, Message) of
        ok ->
            true;
        {error, timeout} ->
            lab:count(Dropped),
            false
    end.

feed(Name, PerS, Message) ->
    lab:at_rate(PerS, fun(Due) ->
        case queue_len(Name) < ?MAX_QUEUE_LEN of
            true -> [Name ! {send, Message} || _ <- lists:seq(1, Due)];
            false -> ok
        end
    end).

queue_len(Name) ->
    {message_queue_len, Length} = erlang:process_info(whereis(Name), message_queue_len),
    Length.
