%% Bookings, payments, tickets of the ferry line: publishers and workers.
-module(ferries).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    T = ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(T, [{published, 0}, {done, 0}, {refused, 0}]),
    {C, Ch} = open(Port, <<"set-up">>),
    [declare(Ch, Q, []) || Q <- [<<"bookings">>, <<"tickets">>, <<"boarding">>, <<"mail">>]],
    %% a payment that fails waits in payments.later, and comes back
    declare(Ch, <<"payments">>, [{<<"x-dead-letter-exchange">>, longstr, <<>>}, {<<"x-dead-letter-routing-key">>, longstr, <<"payments.later">>}]),
    declare(Ch, <<"payments.later">>, [{<<"x-message-ttl">>, signedint, 2500},
                                       {<<"x-dead-letter-exchange">>, longstr, <<>>}, {<<"x-dead-letter-routing-key">>, longstr, <<"payments">>}]),
    [spawn_link(fun() -> worker(Port, Q) end) || Q <- [<<"bookings">>, <<"tickets">>, <<"boarding">>, <<"mail">>, <<"payments">>, <<"payments">>]],
    %% the payments with the card whose processor went away this morning
    [begin publish(Ch, <<"payments">>, <<"card=northcard ">>), N rem 50 =:= 0 andalso timer:sleep(20) end || N <- lists:seq(1, 6000)],
    amqp_connection:close(C),
    [spawn_link(fun() -> timer:sleep(I * 100), {_, P} = open(Port, <<"web">>), web(P) end) || I <- lists:seq(1, 8)],
    report().

declare(Ch, Q, Args) -> #'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true, arguments = Args}).

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

publish(Ch, Q, What) ->
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = Q},
                      #amqp_msg{props = #'P_basic'{delivery_mode = 2}, payload = <<What/binary, (rand:bytes(600))/binary>>}).

web(Ch) ->
    Q = lists:nth(rand:uniform(5), [<<"bookings">>, <<"tickets">>, <<"boarding">>, <<"mail">>, <<"payments">>]),
    publish(Ch, Q, case rand:uniform(12) of 1 -> <<"card=northcard ">>; _ -> <<"card=seacard ">> end),
    ets:update_counter(load, published, 1),
    timer:sleep(100 + rand:uniform(120)),
    web(Ch).

worker(Port, Q) ->
    {_, Ch} = open(Port, <<"worker ", Q/binary>>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 40}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    work(Ch, Q).

work(Ch, Q) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = <<"card=northcard", _/binary>>}} when Q =:= <<"payments">> ->
            ets:update_counter(load, refused, 1),
            amqp_channel:cast(Ch, #'basic.nack'{delivery_tag = Tag, requeue = false}),
            work(Ch, Q);
        {#'basic.deliver'{delivery_tag = Tag}, _} ->
            ets:update_counter(load, done, 1),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            work(Ch, Q);
        _ -> work(Ch, Q)
    end.

report() ->
    timer:sleep(500),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~0p ~0p~n", [erlang:monotonic_time(millisecond), lists:sort(ets:tab2list(load))])),
    report().
