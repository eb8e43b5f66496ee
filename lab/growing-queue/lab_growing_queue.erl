%% Servers that get items without answering them (gen_server:cast). One of them gets more than it can handle, and its
%% queue grows. The others keep up, and one of those works in batches, so its queue is sometimes long but always empties.
%% Healthy: the senders wait for an answer (gen_server:call).
-module(lab_growing_queue).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2]).

%% Above this queue length the senders stop.
-define(MAX_QUEUE_LEN, 400000).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Servers = [lab:server(Context, {server, N}, {?MODULE, #{}}) || N <- lists:seq(1, lab:int(Context, servers, 4, 7))],
    {Sick, Slow} = lab:pick(Context, which, Servers),
    %% A server writes ten items and then waits, as for a disk: about 350 per second.
    SickPerS = lab:int(Context, items_per_s, 900, 1600),
    OtherPerS = lab:int(Context, other_items_per_s, 60, 120),
    Item = binary:copy(<<"i">>, lab:int(Context, item_bytes, 20, 60)),
    BatchMs = lab:int(Context, batch_ms, 1200, 2500),
    {Batcher, BatcherPid} = batcher(Context, BatchMs),
    Send =
        case lab:sick(Context) of
            true -> fun gen_server:cast/2;
            false -> fun(To, Message) -> done = gen_server:call(To, Message, infinity) end
        end,
    [sender(Pid, OtherPerS, Item, fun gen_server:cast/2) || {_, Pid} <- Servers, Pid =/= Slow],
    sender(BatcherPid, 2 * OtherPerS, Item, fun gen_server:cast/2),
    [sender(Slow, SickPerS div 3, Item, Send) || _ <- [1, 2, 3]],
    case lab:sick(Context) of
        true -> lab:wait_until(queue_grows, fun() -> queue_len(Slow) > 3 * SickPerS end);
        false -> lab:pause(2000)
    end,
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => Slow, servers => {list, [Name || {Name, _} <- Servers]}, batcher => Batcher,
            items_per_s => SickPerS, other_items_per_s => OtherPerS, item_bytes => byte_size(Item)
        }
    }.

sender(To, PerS, Item, Send) ->
    lab:start(fun() ->
        lab:at_rate(PerS, fun(Due) ->
            case queue_len(To) < ?MAX_QUEUE_LEN of
                true -> [Send(To, {item, Item, N}) || N <- lists:seq(1, Due)];
                false -> ok
            end
        end)
    end).

batcher(Context, BatchMs) ->
    Name = lab:name(Context, batcher),
    {Name, lab:start(Name, fun() -> lab:forever(fun() -> lab:pause(BatchMs), drain() end) end)}.

drain() ->
    receive {'$gen_cast', {item, _, _}} -> drain()
    after 0 -> ok
    end.

queue_len(Pid) ->
    {message_queue_len, Length} = erlang:process_info(Pid, message_queue_len),
    Length.

init(_) -> {ok, 0}.

handle_cast({item, _, _}, Unwritten) -> {noreply, write(Unwritten)}.

handle_call({item, _, _}, _From, Unwritten) -> {reply, done, write(Unwritten)}.

write(9) ->
    lab:pause(25),
    0;
write(Unwritten) ->
    Unwritten + 1.
