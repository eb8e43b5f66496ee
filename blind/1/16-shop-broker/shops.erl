%% 40 shops: each has a connection with 3 channels, an own reply queue and an inbox. They publish (confirmed),
%% consume with acknowledgements, and call each other (RPC through the reply queues). Some 250 more queues of
%% shops that are closed at this time of day are empty.
-module(shops).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    T = ets:new(load, [public, named_table]),
    ets:insert(T, [{published, 0}, {consumed, 0}, {us, 0}]),
    {C, Ch} = open(Port),
    #'exchange.declare_ok'{} = amqp_channel:call(Ch, #'exchange.declare'{exchange = <<"events">>, type = <<"topic">>}),
    [begin
         Q = iolist_to_binary(["shop.", integer_to_list(I)]),
         #'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}),
         amqp_channel:call(Ch, #'queue.bind'{queue = Q, exchange = <<"events">>, routing_key = Q})
     end || I <- lists:seq(1, 290)],
    amqp_connection:close(C),
    [spawn_link(fun() -> timer:sleep(I * 60), shop(Port, I) end) || I <- lists:seq(1, 40)],
    report().

open(Port) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 60}),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

shop(Port, I) ->
    {C, Ch} = open(Port),
    {ok, In} = amqp_connection:open_channel(C),
    {ok, Rpc} = amqp_connection:open_channel(C),
    #'queue.declare_ok'{queue = _} = amqp_channel:call(Rpc, #'queue.declare'{exclusive = true, auto_delete = true}),
    spawn_link(fun() -> consumer(In, iolist_to_binary(["shop.", integer_to_list(I)])) end),
    #'confirm.select_ok'{} = amqp_channel:call(Ch, #'confirm.select'{}),
    publish(Ch).

publish(Ch) ->
    To = iolist_to_binary(["shop.", integer_to_list(rand:uniform(40))]),
    {Us, true} = timer:tc(fun() ->
        amqp_channel:cast(Ch, #'basic.publish'{exchange = <<"events">>, routing_key = To},
                          #amqp_msg{props = #'P_basic'{delivery_mode = 1}, payload = rand:bytes(400 + rand:uniform(800))}),
        amqp_channel:wait_for_confirms(Ch, 10)
    end),
    ets:update_counter(load, published, 1),
    ets:update_counter(load, us, Us),
    timer:sleep(60 + rand:uniform(100)),
    publish(Ch).

consumer(Ch, Q) ->
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 10}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch).

consume(Ch) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, _} ->
            ets:update_counter(load, consumed, 1),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag});
        _ -> ok
    end,
    consume(Ch).

report() ->
    timer:sleep(1000),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~p~n", [lists:sort(ets:tab2list(load))])),
    report().
