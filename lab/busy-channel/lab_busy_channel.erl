%% Processes that send to another node (the second VM). One sends large messages in bursts, the others small ones at times. The buffer
%% of the channel is small, so senders are suspended. Cured, it holds a burst.
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
    #{node := Node} = lab:hear(Control),
    Peer = list_to_atom(Node),
    %% Drawn there as here.
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

%% In the second VM: takes what comes.
drive(Context, Control) ->
    Sink = lab:name(Context, sink),
    lab:start(Sink, fun() -> lab:forever(fun() -> receive _ -> ok end end) end),
    lab:tell(Control, #{node => atom_to_list(node())}).
