%% Lanes, drivers' phones, and the estimates of arrival, which are sent half a minute after the event (a queue with a TTL waits for that).
-module(freight).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, none),
    ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:new(lat, [public, named_table, ordered_set]),
    ets:insert(load, [{published, 0}, {lane, 0}, {eta, 0}, {failed, 0}]),
    {C, Ch} = open(Port, <<"declare">>),
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}) || Q <- [<<"eta.send">> | lanes()]],
    #'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = <<"eta.in30s">>, durable = true,
        arguments = [{<<"x-message-ttl">>, signedint, 30000}, {<<"x-dead-letter-exchange">>, longstr, <<>>}, {<<"x-dead-letter-routing-key">>, longstr, <<"eta.send">>}]}),
    %% the depots' queues: used at night only
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = <<"depot.", (integer_to_binary(I))/binary>>, durable = true}) || I <- lists:seq(1, 150)],
    amqp_connection:close(C),
    [again(fun() -> consumer(Port, Q, lane) end) || Q <- lanes(), _ <- [1, 2]],
    again(fun() -> consumer(Port, <<"eta.send">>, eta) end),
    [begin timer:sleep(20), again(fun() -> phone(Port) end) end || _ <- lists:seq(1, 140)],
    report().

lanes() -> [<<"lane.", (integer_to_binary(I))/binary>> || I <- lists:seq(1, 20)].

again(F) -> spawn(fun() -> loop(F) end).
loop(F) ->
    {_, M} = spawn_monitor(F),
    receive {'DOWN', M, _, _, _} -> ok end,
    ets:update_counter(load, failed, 1),
    timer:sleep(1000),
    loop(F).

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    link(C),
    {ok, Ch} = amqp_connection:open_channel(C),
    link(Ch),
    {C, Ch}.

phone(Port) ->
    {C, Ch} = open(Port, <<"phone">>),
    unlink(C), unlink(Ch),
    %% some phones have a bad network: they come again after a while
    publish(Ch, case rand:uniform(10) of 1 -> 60; _ -> 1000000 end),
    amqp_connection:close(C),
    phone(Port).
publish(_, 0) -> ok;
publish(Ch, N) ->
    timer:sleep(1000 + rand:uniform(1500)),
    B = <<(erlang:system_time(millisecond)):64, (rand:bytes(400))/binary>>,
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = lists:nth(rand:uniform(20), lanes())}, #amqp_msg{payload = B}),
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = <<"eta.in30s">>}, #amqp_msg{payload = B}),
    ets:update_counter(load, published, 1),
    publish(Ch, N - 1).

consumer(Port, Q, Kind) ->
    {_, Ch} = open(Port, <<"worker ", Q/binary>>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 20}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch, Kind).
consume(Ch, Kind) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = <<T:64, _/binary>>}} ->
            ets:update_counter(load, Kind, 1),
            ets:insert(lat, {{Kind, erlang:monotonic_time(), Tag}, erlang:system_time(millisecond) - T}),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            consume(Ch, Kind);
        _ -> consume(Ch, Kind)
    end.

report() ->
    timer:sleep(5000),
    All = ets:tab2list(lat),
    ets:delete_all_objects(lat),
    F = fun(K) -> L = lists:sort([V || {{K1, _, _}, V} <- All, K1 =:= K]), case L of [] -> none; _ -> {length(L), lists:nth(length(L) div 2 + 1, L), lists:last(L)} end end,
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~0p on the way (n, median, max ms): lanes ~0p eta ~0p~n", [lists:sort(ets:tab2list(load)), F(lane), F(eta)]), [append]),
    report().
