%% Relays that forward messages of clients to another node (the second VM). That node is stopped by a signal: it no longer
%% reads its socket, the distribution buffer fills up, and the relays are suspended. Healthy: it runs.
-module(lab_frozen_peer).

-export([start/1, establish/1, drive/1, drive/2]).

%% The second VM is stopped for this time, and then continues even if this one has exited: a stopped VM cannot exit by
%% itself.
-define(STOPPED_S, 40).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    Kilobytes = lab:int(Context, kilobytes, 20, 60),
    PerS = lab:int(Context, per_s, 40, 80),
    Control = lab:await_driver(),
    #{node := Node, os_pid := OsPid} = lab:recv(Control),
    Peer = list_to_atom(Node),
    %% The second VM draws the same name.
    Sink = lab:name(Context, sink),
    true = net_kernel:connect_node(Peer),
    Names = lab:names(Context, relays, lab:int(Context, relays, 2, 4)),
    Relays = [lab:start(Name, fun() -> relay({Sink, Peer}, binary:copy(<<7>>, Kilobytes * 1024)) end) || Name <- Names],
    [lab:start(fun() -> lab:at_rate(PerS, fun(Count) -> [Relay ! job || _ <- lists:seq(1, Count)] end) end) || Relay <- Relays],
    case lab:sick(Context) of
        true ->
            lab:pause(1000),
            [] = os:cmd(lists:concat(["kill -STOP ", OsPid, "; (sleep ", ?STOPPED_S, "; kill -CONT ", OsPid, ") >/dev/null 2>&1 &"])),
            lab:wait_until(suspended, fun() -> lists:all(fun is_suspended/1, Relays) end);
        false ->
            lab:pause(1000)
    end,
    #{
        sick => lab:culprit(Context, Peer),
        details => #{peer => Peer, relays => {list, Names}, kilobytes => Kilobytes, per_s => PerS},
        driver => Control
    }.

relay(To, Payload) ->
    receive
        job -> To ! Payload
    end,
    relay(To, Payload).

is_suspended(Pid) -> erlang:process_info(Pid, status) =:= {status, suspended}.

%% The receiver, in the second VM.
drive(Context, Control) ->
    Sink = lab:name(Context, sink),
    lab:start(Sink, fun() -> lab:forever(fun() -> receive _ -> ok end end) end),
    lab:send(Control, #{node => atom_to_list(node()), os_pid => list_to_integer(os:getpid())}).
