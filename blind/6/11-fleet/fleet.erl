%% Vans send their positions; dispatch and billing take what is theirs; the map keeps the last 30000 positions for
%% whoever looks at it; what could not be delivered today waits in a queue with a time to live and comes back.
-module(fleet).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, none),
    ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(load, [{sent, 0}, {<<"dispatch">>, 0}, {<<"billing">>, 0}, {<<"deliveries">>, 0}, {again, 0}, {way_ms_sum, 0}, {way_ms_max, 0}]),
    {C, Ch} = open(Port, <<"declare">>),
    #'exchange.declare_ok'{} = amqp_channel:call(Ch, #'exchange.declare'{exchange = <<"fleet">>, type = <<"topic">>, durable = true}),
    D = fun(Q, Args) -> #'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true, arguments = Args}) end,
    B = fun(Q, K) -> #'queue.bind_ok'{} = amqp_channel:call(Ch, #'queue.bind'{queue = Q, exchange = <<"fleet">>, routing_key = K}) end,
    D(<<"dispatch">>, []), B(<<"dispatch">>, <<"position.#">>),
    D(<<"billing">>, []), B(<<"billing">>, <<"trip.#">>),
    D(<<"deliveries">>, []), B(<<"deliveries">>, <<"delivery.#">>),
    D(<<"map.last">>, [{<<"x-max-length">>, long, 30000}, {<<"x-overflow">>, longstr, <<"drop-head">>}]), B(<<"map.last">>, <<"position.#">>),
    D(<<"deliveries.later">>, [{<<"x-message-ttl">>, long, 20000}, {<<"x-dead-letter-exchange">>, longstr, <<>>}, {<<"x-dead-letter-routing-key">>, longstr, <<"deliveries">>}]),
    [D(<<"driver.", (integer_to_binary(I))/binary>>, []) || I <- lists:seq(1, 150)],
    [amqp_channel:cast(Ch, #'basic.publish'{exchange = <<>>, routing_key = <<"map.last">>}, #amqp_msg{payload = rand:bytes(120)}) || _ <- lists:seq(1, 30000)],
    #'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = <<"map.last">>, passive = true}),
    amqp_connection:close(C),
    [spawn_link(fun() -> consumer(Port, Q, N) end) || {Q, N} <- [{<<"dispatch">>, 1}, {<<"dispatch">>, 2}, {<<"billing">>, 1}, {<<"deliveries">>, 1}, {<<"deliveries">>, 2}]],
    [spawn_link(fun() -> timer:sleep(I * 60), driver(Port, I) end) || I <- lists:seq(1, 150)],
    [spawn_link(fun() -> timer:sleep(I * 60), van(Port) end) || I <- lists:seq(1, 12)],
    report().

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 60,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

van(Port) -> {_, Ch} = open(Port, <<"van">>), drive(Ch, 0).
drive(Ch, N) ->
    Key = case N rem 10 of 0 -> <<"trip.end">>; 5 -> <<"delivery.new">>; _ -> <<"position.city">> end,
    amqp_channel:cast(Ch, #'basic.publish'{exchange = <<"fleet">>, routing_key = Key},
                      #amqp_msg{props = #'P_basic'{delivery_mode = 1}, payload = <<(erlang:monotonic_time(millisecond)):64/signed, (rand:bytes(112))/binary>>}),
    ets:update_counter(load, sent, 1),
    N rem 40 =:= 0 andalso amqp_channel:cast(Ch, #'basic.publish'{exchange = <<>>, routing_key = <<"driver.", (integer_to_binary(rand:uniform(150)))/binary>>}, #amqp_msg{payload = <<"hello">>}),
    timer:sleep(30 + rand:uniform(30)),
    drive(Ch, N + 1).

%% the drivers' telephones: connected all day, a message now and then
driver(Port, I) ->
    {_, Ch} = open(Port, <<"driver ", (integer_to_binary(I))/binary>>),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = <<"driver.", (integer_to_binary(I))/binary>>, no_ack = true}, self()),
    idle().
idle() -> receive _ -> idle() end.

consumer(Port, Q, N) ->
    {_, Ch} = open(Port, <<Q/binary, " ", (integer_to_binary(N))/binary>>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 40}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch, Q).
consume(Ch, Q) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = <<At:64/signed, _/binary>> = P, props = #'P_basic'{headers = H}}} ->
            ets:update_counter(load, Q, 1),
            case H of
                undefined ->
                    W = erlang:monotonic_time(millisecond) - At,
                    ets:update_counter(load, way_ms_sum, W),
                    [{_, M}] = ets:lookup(load, way_ms_max), W > M andalso ets:insert(load, {way_ms_max, W});
                _ -> ets:update_counter(load, again, 1)
            end,
            %% nobody at home: once more later, but not a second time
            Q =:= <<"deliveries">> andalso H =:= undefined andalso rand:uniform(4) =:= 1 andalso
                amqp_channel:cast(Ch, #'basic.publish'{exchange = <<>>, routing_key = <<"deliveries.later">>}, #amqp_msg{payload = P}),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            consume(Ch, Q);
        _ -> consume(Ch, Q)
    end.

report() ->
    timer:sleep(2000),
    L = lists:sort(ets:tab2list(load)),
    ets:insert(load, {way_ms_max, 0}),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~p ~0p~n", [erlang:monotonic_time(millisecond), L]), [append]),
    report().
