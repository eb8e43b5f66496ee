%% Stations publish; forecasters' screens subscribe to what they look at; archive and warnings listen always.
-module(meteo).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, none),
    ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(load, [{published, 0}, {confirm_ms_max, 0}, {confirm_ms_sum, 0}, {archived, 0}, {screens, 0}, {screen_ms, 0}, {seen, 0}]),
    {C, Ch} = open(Port, <<"declare">>),
    #'exchange.declare_ok'{} = amqp_channel:call(Ch, #'exchange.declare'{exchange = <<"meteo">>, type = <<"topic">>, durable = true}),
    [begin
         #'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}),
         #'queue.bind_ok'{} = amqp_channel:call(Ch, #'queue.bind'{queue = Q, exchange = <<"meteo">>, routing_key = K})
     end || {Q, K} <- [{<<"archive">>, <<"#">>}, {<<"warnings.storm">>, <<"*.*.wind">>}, {<<"warnings.frost">>, <<"*.*.temperature">>}]],
    amqp_connection:close(C),
    [spawn_link(fun() -> consumer(Port, Q) end) || Q <- [<<"archive">>, <<"warnings.storm">>, <<"warnings.frost">>]],
    [spawn_link(fun() -> timer:sleep(I * 150), station(Port, I) end) || I <- lists:seq(1, 10)],
    [spawn_link(fun() -> timer:sleep(2000 + I * 600), screens(Port, I) end) || I <- lists:seq(1, 7)],
    report().

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

key(Region, Station, What) -> iolist_to_binary(io_lib:format("r~b.s~b.~s", [Region, Station, What])).
whats() -> ["wind", "temperature", "rain", "pressure", "sun", "snow"].

station(Port, I) ->
    {_, Ch} = open(Port, <<"station ", (integer_to_binary(I))/binary>>),
    #'confirm.select_ok'{} = amqp_channel:call(Ch, #'confirm.select'{}),
    publish(Ch, I).

publish(Ch, I) ->
    K = key(rand:uniform(12), rand:uniform(60), lists:nth(rand:uniform(6), whats())),
    A = erlang:monotonic_time(millisecond),
    amqp_channel:cast(Ch, #'basic.publish'{exchange = <<"meteo">>, routing_key = K},
                      #amqp_msg{props = #'P_basic'{delivery_mode = 1}, payload = rand:bytes(300)}),
    amqp_channel:wait_for_confirms(Ch, 30),
    T = erlang:monotonic_time(millisecond) - A,
    ets:update_counter(load, published, 1),
    ets:update_counter(load, confirm_ms_sum, T),
    [{_, M}] = ets:lookup(load, confirm_ms_max),
    T > M andalso ets:insert(load, {confirm_ms_max, T}),
    timer:sleep(60 + rand:uniform(80)),
    publish(Ch, I).

consumer(Port, Q) ->
    {_, Ch} = open(Port, Q),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 50}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch, archived).

consume(Ch, Count) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, _} ->
            ets:update_counter(load, Count, 1),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            consume(Ch, Count);
        _ -> consume(Ch, Count)
    end.

%% A forecaster opens a map: the screen subscribes to each value of each station that is in the picture,
%% and some seconds later to another picture, by a new connection and a new queue.
screens(Port, I) ->
    A = erlang:monotonic_time(millisecond),
    {C, Ch} = open(Port, <<"screen ", (integer_to_binary(I))/binary>>),
    #'queue.declare_ok'{queue = Q} = amqp_channel:call(Ch, #'queue.declare'{exclusive = true, auto_delete = true}),
    R = rand:uniform(12),
    [amqp_channel:call(Ch, #'queue.bind'{queue = Q, exchange = <<"meteo">>, routing_key = key(R, S, W), nowait = true})
     || S <- lists:seq(1, 60), W <- whats()],
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q, no_ack = true}, self()),
    ets:update_counter(load, screens, 1),
    ets:insert(load, {screen_ms, erlang:monotonic_time(millisecond) - A}),
    erlang:send_after(1500 + rand:uniform(1500), self(), other_map),
    look(),
    catch amqp_connection:close(C, 60000),
    screens(Port, I).

look() ->
    receive
        other_map -> ok;
        {#'basic.deliver'{}, _} -> ets:update_counter(load, seen, 1), look();
        _ -> look()
    end.

report() ->
    timer:sleep(2000),
    L = lists:sort(ets:tab2list(load)),
    ets:insert(load, {confirm_ms_max, 0}),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~p ~0p~n", [erlang:monotonic_time(millisecond), L]), [append]),
    report().
