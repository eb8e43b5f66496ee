%% Generates load on a RabbitMQ node through RabbitMQ's Erlang client: publishers with a fixed rate, and consumers that work for a fixed
%% time on each message and acknowledge it.
%%
%%   erl -noinput -run rabbit_load start PORT SECONDS QUEUES PUBLISHERS RATE BYTES CONSUMERS WORK_MS
%%
%% RATE is the total messages per second of all publishers. Prints a line per second in PerfTest's format, and halts after SECONDS.
-module(rabbit_load).

-export([start/1]).

-include_lib("amqp_client/include/amqp_client.hrl").

-define(PREFETCH, 50).

start(Args) ->
    [Port, Seconds, Queues, Publishers, Rate, Bytes, Consumers, WorkMs] = [list_to_integer(Arg) || Arg <- Args],
    %% If a linked process fails, the load halts.
    process_flag(trap_exit, true),
    {ok, Connection} = amqp_connection:start(#amqp_params_network{port = Port}),
    Names = [iolist_to_binary(["load_", integer_to_list(N)]) || N <- lists:seq(1, Queues)],
    {ok, Setup} = amqp_connection:open_channel(Connection),
    [#'queue.declare_ok'{} = amqp_channel:call(Setup, #'queue.declare'{queue = Name}) || Name <- Names],
    Counts = counters:new(2, [write_concurrency]),
    spread(Consumers, Names, fun(Name) -> consumer(Port, Name, WorkMs, Counts) end),
    Payload = binary:copy(<<"x">>, Bytes),
    spread(Publishers, Names, fun(Name) -> publisher(Port, Name, Payload, Rate / Publishers, Counts) end),
    io:put_chars("load ready\n"),
    report(Seconds, Counts, {0, 0}),
    halt(0).

spread(Count, Names, Fun) ->
    [spawn_link(fun() -> Fun(lists:nth(1 + N rem length(Names), Names)) end) || N <- lists:seq(1, Count)].

channel(Port) ->
    {ok, Connection} = amqp_connection:start(#amqp_params_network{port = Port}),
    {ok, Channel} = amqp_connection:open_channel(Connection),
    Channel.

publisher(Port, Queue, Payload, Rate, Counts) ->
    publish(channel(Port), Queue, Payload, Rate, Counts, erlang:monotonic_time(microsecond), 0).

publish(Channel, Queue, Payload, Rate, Counts, Began, Done) ->
    Due = trunc((erlang:monotonic_time(microsecond) - Began) * Rate / 1000000),
    [amqp_channel:cast(Channel, #'basic.publish'{routing_key = Queue}, #amqp_msg{payload = Payload})
     || _ <- lists:seq(Done + 1, Due)],
    counters:add(Counts, 1, Due - Done),
    timer:sleep(20),
    publish(Channel, Queue, Payload, Rate, Counts, Began, Due).

consumer(Port, Queue, WorkMs, Counts) ->
    Channel = channel(Port),
    #'basic.qos_ok'{} = amqp_channel:call(Channel, #'basic.qos'{prefetch_count = ?PREFETCH}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Channel, #'basic.consume'{queue = Queue}, self()),
    consume(Channel, WorkMs, Counts).

consume(Channel, WorkMs, Counts) ->
    receive
        #'basic.consume_ok'{} ->
            ok;
        {#'basic.deliver'{delivery_tag = Tag}, _} ->
            timer:sleep(WorkMs),
            ok = amqp_channel:cast(Channel, #'basic.ack'{delivery_tag = Tag}),
            counters:add(Counts, 2, 1)
    end,
    consume(Channel, WorkMs, Counts).

report(0, _, _) ->
    ok;
report(Seconds, Counts, {Published, Consumed}) ->
    receive
        {'EXIT', _, Reason} ->
            io:format(standard_error, "load failed: ~tp~n", [Reason]),
            halt(1)
    after 1000 -> ok
    end,
    Now = {counters:get(Counts, 1), counters:get(Counts, 2)},
    io:format("sent: ~b msg/s, received: ~b msg/s~n", [element(1, Now) - Published, element(2, Now) - Consumed]),
    report(Seconds - 1, Counts, Now).
