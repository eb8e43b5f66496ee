%% The desks of the newsroom: reports go by topic to the desks and into the archive of the last 30000 reports.
-module(newsroom_desks).
-export([run/0]).
-include_lib("amqp_client/include/amqp_client.hrl").

run() ->
    {ok, _} = application:ensure_all_started(amqp_client),
    T = ets:new(times, [public, duplicate_bag]),
    {ok, C} = connect(),
    {ok, Ch} = amqp_connection:open_channel(C),
    amqp_channel:call(Ch, #'exchange.declare'{exchange = <<"reports">>, type = <<"topic">>}),
    amqp_channel:call(Ch, #'queue.declare'{queue = <<"archive">>, durable = true, arguments = [{<<"x-max-length">>, long, 30000}]}),
    amqp_channel:call(Ch, #'queue.bind'{queue = <<"archive">>, exchange = <<"reports">>, routing_key = <<"#">>}),
    [amqp_channel:cast(Ch, #'basic.publish'{exchange = <<"reports">>, routing_key = <<"old">>}, #amqp_msg{payload = rand:bytes(800)}) || _ <- lists:seq(1, 30000)],
    [spawn_link(fun() -> desks(I, T) end) || I <- lists:seq(1, 6)],
    [spawn_link(fun() -> reporter(I) end) || I <- lists:seq(1, 10)],
    spawn_link(fun visitor/0),
    report(T).

connect() -> amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = list_to_integer(os:getenv("AMQP_PORT"))}).

desks(I, T) ->
    {ok, C} = connect(),
    [spawn_link(fun() ->
        {ok, Ch} = amqp_connection:open_channel(C),
        Q = <<"desk.", (integer_to_binary(I * 10 + J))/binary>>,
        amqp_channel:call(Ch, #'queue.declare'{queue = Q, auto_delete = true}),
        amqp_channel:call(Ch, #'queue.bind'{queue = Q, exchange = <<"reports">>, routing_key = <<"topic.", (integer_to_binary(J))/binary>>}),
        amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 50}),
        amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
        desk(Ch, T)
     end) || J <- lists:seq(1, 9)],
    timer:sleep(infinity).

desk(Ch, T) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = <<T0:64/signed, _/binary>>}} ->
            ets:insert(T, {t, erlang:monotonic_time() - T0}),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag});
        _ -> ok
    end,
    desk(Ch, T).

reporter(_) ->
    {ok, C} = connect(),
    {ok, Ch} = amqp_connection:open_channel(C),
    write(Ch).

write(Ch) ->
    timer:sleep(100 + rand:uniform(100)),
    amqp_channel:cast(Ch, #'basic.publish'{exchange = <<"reports">>, routing_key = <<"topic.", (integer_to_binary(rand:uniform(9)))/binary>>},
        #amqp_msg{payload = <<(erlang:monotonic_time()):64/signed, (rand:bytes(600))/binary>>}),
    write(Ch).

%% a guest who comes and goes
visitor() ->
    {ok, C} = connect(),
    {ok, Ch} = amqp_connection:open_channel(C),
    amqp_channel:call(Ch, #'queue.declare'{exclusive = true}),
    timer:sleep(1500),
    amqp_connection:close(C),
    visitor().

report(T) ->
    timer:sleep(5000),
    L = lists:sort([X / 1.0e6 || {t, X} <- ets:tab2list(T)]),
    ets:delete_all_objects(T),
    N = length(L),
    N > 0 andalso file:write_file(os:getenv("REPORT"), io_lib:format("~b/s median ~.1f p95 ~.1f max ~.1f ms~n",
        [N div 5, lists:nth(N div 2 + 1, L), lists:nth(N * 95 div 100 + 1, L), lists:last(L)]), [append]),
    report(T).
