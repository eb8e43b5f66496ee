%% A process that writes its messages to a connection, and requests a GC after every N bytes. The other end did not read
%% for a moment. Since then each GC copies the messages that piled up on the heap, so the queue never shrinks. Healthy:
%% the queue is off the heap, and no GC is requested.
-module(lab_backlog_collected).
-behaviour(gen_server).

-export([start/1, establish/1, drive/1, drive/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Above this queue length the sources stop.
-define(MAX_QUEUE_LEN, 300000).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    PerS = lab:int(Context, messages_per_s, 1000, 1400),
    Sources = lab:int(Context, sources, 3, 6),
    Bytes = lab:int(Context, payload_bytes, 3000, 5000),
    Peak = lab:int(Context, peak_messages, 120000, 150000),
    OrderedAfter = lab:int(Context, collect_after_kb, 100, 200) * 1000,
    Sick = lab:sick(Context),
    Control = lab:await_driver(),
    #{port := Port} = lab:recv(Control),
    Written = lab:counter(),
    Threshold = case Sick of true -> OrderedAfter; false -> infinity end,
    {Name, Writer} = lab:server(Context, writer, {?MODULE, {Port, Threshold, Written}}),
    Payload = lab:binary(Bytes),
    %% The other end does not read yet: the writer blocks in its first writes.
    send(Writer, Payload, Peak),
    lab:send(Control, read),
    [
        lab:start(fun() ->
            lab:at_rate(PerS div Sources, fun(Due) ->
                case queue_len(Writer) < ?MAX_QUEUE_LEN of
                    true -> send(Writer, Payload, Due);
                    false -> ok
                end
            end)
        end)
     || _ <- lists:seq(1, Sources)
    ],
    case Sick of
        true -> lab:wait_until(written, fun() -> lab:total(Written) > PerS end);
        false -> lab:wait_until(worked_off, fun() -> lab:total(Written) > Peak andalso queue_len(Writer) < 100 end)
    end,
    #{
        sick => lab:culprit(Context, Name),
        details => #{
            pid => Writer, messages_per_s => PerS, sources => Sources, payload_bytes => byte_size(Payload),
            peak_messages => Peak, collect_after_bytes => OrderedAfter
        },
        driver => Control
    }.

%% A message has properties besides its payload, like those of message brokers.
send(Writer, Payload, Count) ->
    [gen_server:cast(Writer, {send, N, properties(N), Payload}) || N <- lists:seq(1, Count)].

properties(N) ->
    [
        {content_type, json}, {priority, N rem 10}, {correlation, {N, self()}}, {reply_to, [self(), N]},
        {expires, N + 60000}, {headers, [{tenant, N rem 100}, {trace, {N, N + 1}}]}
    ].

queue_len(Pid) ->
    {message_queue_len, Length} = erlang:process_info(Pid, message_queue_len),
    Length.

init({Port, Threshold, Written}) ->
    Threshold =:= infinity andalso process_flag(message_queue_data, off_heap),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    {ok, {Socket, Threshold, 0, Written}}.

handle_cast({send, N, Properties, Payload}, {Socket, Threshold, Unswept, Written}) ->
    %% Not gen_tcp:send, which would scan the whole queue for the port's reply: that is another lab.
    true = erlang:port_command(Socket, [<<N:32, (length(Properties)):8>>, Payload]),
    lab:count(Written),
    {noreply, {Socket, Threshold, swept(Unswept + byte_size(Payload), Threshold), Written}}.

handle_info({inet_reply, _, ok}, State) -> {noreply, State}.

handle_call(_, _From, State) -> {reply, ok, State}.

swept(Unswept, Threshold) when is_integer(Threshold), Unswept > Threshold ->
    true = erlang:garbage_collect(),
    0;
swept(Unswept, _) -> Unswept.

%% The other end, in the second VM.
drive(_, Control) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    lab:send(Control, #{port => Port}),
    {ok, Socket} = gen_tcp:accept(Listen, 60000),
    read = lab:recv(Control),
    Reader = lab:start(fun() -> receive go -> read(Socket) end end),
    ok = gen_tcp:controlling_process(Socket, Reader),
    Reader ! go.

read(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, _} -> read(Socket);
        {error, closed} -> ok
    end.
