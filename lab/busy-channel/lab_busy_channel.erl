%% Processes that send to another node (the second VM). One sends large messages in bursts, the others send a small one
%% now and then. The distribution buffer is small, so senders are suspended. Healthy: a burst fits into it.
-module(lab_busy_channel).

-export([start/1, establish/1, drive/1, drive/2]).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    Kilobytes = lab:int(Context, kilobytes, 60, 120),
    BurstsPerS = lab:int(Context, bursts_per_s, 20, 40),
    Messages = lab:int(Context, messages, 3, 6),
    SmallPerS = lab:int(Context, small_per_s, 2, 5),
    Control = lab:await_driver(),
    #{node := Node} = lab:recv(Control),
    Peer = list_to_atom(Node),
    %% The second VM draws the same name.
    Sink = lab:name(Context, sink),
    true = net_kernel:connect_node(Peer),
    [Large | Others] = Names = lab:names(Context, senders, lab:int(Context, senders, 4, 7)),
    Payload = binary:copy(<<7>>, Kilobytes * 1024),
    Sent = lab:counter(),
    Pid = lab:start(Large, fun() ->
        lab:at_rate(BurstsPerS, fun(Bursts) ->
            [{Sink, Peer} ! Payload || _ <- lists:seq(1, Bursts * Messages)],
            lab:count(Sent)
        end)
    end),
    [lab:start(Other, fun() -> lab:at_rate(SmallPerS, fun(_) -> {Sink, Peer} ! small end) end) || Other <- Others],
    lab:wait_until(sent, fun() -> lab:total(Sent) > 20 end),
    #{
        sick => lab:culprit(Context, Large),
        details => #{
            pid => Pid, senders => {list, lab:shuffle(Context, order, Names)}, kilobytes => Kilobytes,
            bursts_per_s => BurstsPerS, messages => Messages, peer => Peer
        },
        driver => Control
    }.

%% The receiver, in the second VM.
drive(Context, Control) ->
    Sink = lab:name(Context, sink),
    lab:start(Sink, fun() -> lab:forever(fun() -> receive _ -> ok end end) end),
    lab:send(Control, #{node => atom_to_list(node())}).
