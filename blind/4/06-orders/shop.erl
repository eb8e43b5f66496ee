%% The shop's web servers and its workers.
-module(shop).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    T = ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(T, [{published, 0}, {age, 0} | [{{worker, N}, 0} || N <- lists:seq(1, 4)]]),
    {C, Ch} = open(Port, <<"declare">>),
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}) || Q <- queues()],
    %% the night's orders
    [ok = amqp_channel:cast(Ch, #'basic.publish'{routing_key = <<"orders.invoice">>}, msg()) || _ <- lists:seq(1, 24000)],
    timer:sleep(2000),
    amqp_connection:close(C),
    %% the first invoice worker starts some seconds before the others
    spawn_link(fun() -> consumer(Port, <<"orders.invoice">>, 1, 55) end),
    timer:sleep(6000),
    [spawn_link(fun() -> consumer(Port, <<"orders.invoice">>, N, 55) end) || N <- [2, 3, 4]],
    [spawn_link(fun() -> consumer(Port, Q, other, 2) end) || Q <- tl(queues()), _ <- [1, 2]],
    [spawn_link(fun() -> timer:sleep(I * 100), publisher(Port) end) || I <- lists:seq(1, 6)],
    report().

queues() -> [<<"orders.invoice">>, <<"orders.pack">>, <<"stock.changes">>, <<"mail.confirm">>].
msg() -> #amqp_msg{props = #'P_basic'{delivery_mode = 2, timestamp = erlang:system_time(second)}, payload = rand:bytes(1800)}.

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 60,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

publisher(Port) ->
    {_, Ch} = open(Port, <<"web">>),
    publish(Ch).
publish(Ch) ->
    Q = case rand:uniform(10) of 1 -> <<"orders.invoice">>; _ -> lists:nth(rand:uniform(3), tl(queues())) end,
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = Q}, msg()),
    ets:update_counter(load, published, 1),
    timer:sleep(20 + rand:uniform(60)),
    publish(Ch).

consumer(Port, Q, N, Work) ->
    {_, Ch} = open(Port, iolist_to_binary(["worker ", Q, " ", io_lib:format("~p", [N])])),
    case os:getenv("PREFETCH") of
        false -> ok;
        P -> amqp_channel:call(Ch, #'basic.qos'{prefetch_count = list_to_integer(P)})
    end,
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()),
    consume(Ch, N, Work).
consume(Ch, N, Work) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{props = #'P_basic'{timestamp = At}}} ->
            timer:sleep(Work),
            case N of
                other -> ok;
                _ -> ets:update_counter(load, {worker, N}, 1), ets:insert(load, {{age, N}, erlang:system_time(second) - At})
            end,
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            consume(Ch, N, Work);
        _ -> consume(Ch, N, Work)
    end.

report() ->
    timer:sleep(500),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~0p ~0p~n", [erlang:monotonic_time(millisecond), lists:sort(ets:tab2list(load))])),
    report().
