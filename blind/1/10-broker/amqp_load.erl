%% Shops that publish orders, and the warehouse that consumes them.
-module(amqp_load).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    T = ets:new(load, [public, named_table]),
    ets:insert(T, [{published, 0}, {consumed, 0}, {blocked, 0}]),
    {C, Ch} = open(Port),
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}) || Q <- queues()],
    amqp_connection:close(C),
    [spawn_link(fun() -> consumer(Port, Q) end) || Q <- queues()],
    [spawn_link(fun() -> timer:sleep(I * 100), publisher(Port) end) || I <- lists:seq(1, 12)],
    report().

queues() -> [<<"orders.new">>, <<"orders.paid">>, <<"stock.changes">>, <<"mail.outgoing">>].

open(Port) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30}),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

publisher(Port) ->
    {C, Ch} = open(Port),
    amqp_connection:register_blocked_handler(C, self()),
    #'confirm.select_ok'{} = amqp_channel:call(Ch, #'confirm.select'{}),
    publish(Ch).

publish(Ch) ->
    receive
        #'connection.blocked'{} ->
            ets:update_counter(load, blocked, 1),
            receive #'connection.unblocked'{} -> ets:update_counter(load, blocked, -1) end
    after 0 -> ok
    end,
    Body = <<(integer_to_binary(os:system_time(millisecond)))/binary, (rand:bytes(600))/binary>>,
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = lists:nth(rand:uniform(4), queues())},
                      #amqp_msg{props = #'P_basic'{delivery_mode = 2}, payload = Body}),
    case catch amqp_channel:wait_for_confirms(Ch, 5) of
        true -> ets:update_counter(load, published, 1);
        _ -> ok
    end,
    timer:sleep(20 + rand:uniform(60)),
    publish(Ch).

consumer(Port, Q) ->
    {_, Ch} = open(Port),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 20}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch).

consume(Ch) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, _} ->
            ets:update_counter(load, consumed, 1),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            consume(Ch);
        _ -> consume(Ch)
    end.

report() ->
    timer:sleep(500),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~p~n", [lists:sort(ets:tab2list(load))])),
    report().
