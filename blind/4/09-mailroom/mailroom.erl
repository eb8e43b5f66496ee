%% Senders, sorters and the pigeon-holes of the mail room.
-module(mailroom).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).
-define(HOLES, 700).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    T = ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(T, [{published, 0}, {done, 0}, {returned, 0}, {slowest_ms, 0}, {ready, 0}]),
    {_, Ch} = open(Port, <<"declare">>),
    %% one queue for each pigeon-hole; nobody looks into them during the day
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = hole(N), durable = true}) || N <- lists:seq(1, ?HOLES)],
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}) || Q <- [<<"returned">> | queues()]],
    %% letters that could not be delivered last month, kept for the clerk who comes on Mondays
    [amqp_channel:cast(Ch, #'basic.publish'{routing_key = <<"returned">>}, msg(2)) || _ <- lists:seq(1, 12000)],
    [amqp_channel:cast(Ch, #'basic.publish'{routing_key = hole(N)}, msg(1)) || N <- lists:seq(1, ?HOLES), _ <- lists:seq(1, 1 + N rem 4)],
    [spawn_link(fun() -> consumer(Port, Q) end) || Q <- queues(), _ <- lists:seq(1, 4)],
    [spawn_link(fun() -> timer:sleep(I * 60), publisher(Port) end) || I <- lists:seq(1, 10)],
    spawn_link(fun() -> timer:sleep(5000), visitor(Port) end),
    ets:insert(T, {ready, 1}),
    report().

queues() -> [<<"letters">>, <<"parcels">>, <<"telegrams">>].
hole(N) -> <<"hole.", (integer_to_binary(N))/binary>>.
msg(Mode) -> #amqp_msg{props = #'P_basic'{delivery_mode = Mode, message_id = integer_to_binary(erlang:system_time(millisecond))}, payload = rand:bytes(900)}.

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 60,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

publisher(Port) -> {_, Ch} = open(Port, <<"sender">>), publish(Ch).
publish(Ch) ->
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = lists:nth(rand:uniform(3), queues())}, msg(1)),
    ets:update_counter(load, published, 1),
    timer:sleep(20 + rand:uniform(50)),
    publish(Ch).

%% sorters take 40 at a time and work on them for a while: always some unacknowledged
consumer(Port, Q) ->
    {_, Ch} = open(Port, <<"sorter ", Q/binary>>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 40}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch).
consume(Ch) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{props = #'P_basic'{message_id = Id}}} ->
            erlang:send_after(300 + rand:uniform(400), self(), {sorted, Tag}),
            L = erlang:system_time(millisecond) - binary_to_integer(Id),
            [{_, Max}] = ets:lookup(load, slowest_ms),
            ets:insert(load, {slowest_ms, max(L, Max)}),
            consume(Ch);
        {sorted, Tag} ->
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            ets:update_counter(load, done, 1),
            consume(Ch);
        _ -> consume(Ch)
    end.

%% somebody asks for his own pigeon-hole, every five seconds, and leaves
visitor(Port) ->
    {C, Ch} = open(Port, <<"visitor">>),
    _ = amqp_channel:call(Ch, #'queue.declare'{queue = hole(rand:uniform(?HOLES)), passive = true}),
    amqp_connection:close(C),
    timer:sleep(5000),
    visitor(Port).

report() ->
    timer:sleep(500),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~0p ~0p~n", [erlang:monotonic_time(millisecond), lists:sort(ets:tab2list(load))])),
    report().
