%% Producers and consumers of the document service.
-module(documents).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    T = ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(T, [{published, 0}, {done, 0}, {not_done, 0}]),
    {C, Ch} = open(Port, <<"declare">>),
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}) || Q <- queues()],
    %% documents of a template that does not exist any more
    [ok = amqp_channel:cast(Ch, #'basic.publish'{routing_key = <<"documents.render">>},
                            #amqp_msg{props = #'P_basic'{delivery_mode = 2}, payload = <<"template=letter-2019 ", (rand:bytes(2000))/binary>>})
     || _ <- lists:seq(1, 120)],
    timer:sleep(500),
    amqp_connection:close(C),
    [spawn_link(fun() -> consumer(Port, Q) end) || Q <- queues()],
    [spawn_link(fun() -> timer:sleep(I * 100), publisher(Port) end) || I <- lists:seq(1, 8)],
    report().

queues() -> [<<"documents.render">>, <<"documents.archive">>, <<"mail.outgoing">>, <<"audit.log">>, <<"print.jobs">>].

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

publisher(Port) ->
    {_, Ch} = open(Port, <<"web">>),
    publish(Ch).

publish(Ch) ->
    Q = lists:nth(rand:uniform(5), queues()),
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = Q},
                      #amqp_msg{props = #'P_basic'{delivery_mode = 1}, payload = <<"template=invoice-2024 ", (rand:bytes(1500))/binary>>}),
    ets:update_counter(load, published, 1),
    timer:sleep(60 + rand:uniform(100)),
    publish(Ch).

consumer(Port, Q) ->
    {_, Ch} = open(Port, <<"worker ", Q/binary>>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 30}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch).

consume(Ch) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = <<"template=letter-2019", _/binary>>}} ->
            %% "something went wrong, somebody will try again"
            ets:update_counter(load, not_done, 1),
            amqp_channel:cast(Ch, #'basic.reject'{delivery_tag = Tag, requeue = true}),
            consume(Ch);
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
