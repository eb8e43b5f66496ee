%% Producers and consumers of the invoice service.
-module(invoices).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(load, [{published, 0}, {done, 0}, {invoices, 0}]),
    {C, Ch} = open(Port, <<"declare">>),
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}) || Q <- queues()],
    amqp_connection:close(C),
    [spawn_link(fun() -> consumer(Port, Q) end) || Q <- queues()],
    [spawn_link(fun() -> timer:sleep(I * 100), shop(Port, I) end) || I <- lists:seq(1, 6)],
    [spawn_link(fun() -> timer:sleep(I * 100), billing(Port, I) end) || I <- lists:seq(1, 3)],
    report().

queues() -> [<<"invoices.new">>, <<"orders.new">>, <<"orders.paid">>, <<"mail.outgoing">>].

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

shop(Port, I) ->
    {_, Ch} = open(Port, <<"shop ", (integer_to_binary(I))/binary>>),
    shop(Ch).
shop(Ch) ->
    timer:sleep(60 + rand:uniform(80)),
    Q = lists:nth(1 + rand:uniform(3), queues()),
    publish(Ch, Q),
    shop(Ch).

billing(Port, I) ->
    {C, _} = open(Port, <<"billing ", (integer_to_binary(I))/binary>>),
    billing(C, 0, erlang:monotonic_time(second)).
billing(C, N, T0) ->
    timer:sleep(case erlang:monotonic_time(second) - T0 < 15 of true -> 60; false -> 350 end),
    {ok, Ch} = amqp_connection:open_channel(C),
    publish(Ch, <<"invoices.new">>),
    ets:update_counter(load, invoices, 1),
    billing(C, N + 1, T0).

publish(Ch, Q) ->
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = Q},
                      #amqp_msg{props = #'P_basic'{delivery_mode = 1}, payload = rand:bytes(900)}),
    ets:update_counter(load, published, 1).

consumer(Port, Q) ->
    {_, Ch} = open(Port, <<"worker ", Q/binary>>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 30}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch).
consume(Ch) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, _} ->
            ets:update_counter(load, done, 1),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            consume(Ch);
        _ -> consume(Ch)
    end.

report() ->
    timer:sleep(500),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~0p ~0p~n", [erlang:monotonic_time(millisecond), lists:sort(ets:tab2list(load))])),
    report().
