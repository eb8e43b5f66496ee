%% Concentrators that publish readings, the store that consumes them, and the commands the other way.
-module(meterhub).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, none),
    ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:new(lat, [public, named_table, ordered_set]),
    ets:insert(load, [{published, 0}, {stored, 0}, {commands, 0}, {failed, 0}]),
    Main = self(),
    again(fun() -> store(Port, Main) end),
    receive ready -> ok end,
    again(fun() -> commander(Port) end),
    [begin timer:sleep(150), again(fun() -> concentrator(Port, I) end) end || I <- lists:seq(1, 45)],
    report().

%% whatever breaks is begun again
again(F) -> spawn(fun() -> loop(F) end).
loop(F) ->
    {_, M} = spawn_monitor(F),
    receive {'DOWN', M, _, _, _} -> ok end,
    ets:update_counter(load, failed, 1),
    timer:sleep(1000),
    loop(F).

open(Port, User) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 60, username = User, password = <<"meter">>,
        connection_timeout = 60000, client_properties = [{<<"connection_name">>, longstr, User}]}, User),
    link(C),
    {ok, Ch} = amqp_connection:open_channel(C),
    link(Ch),
    Ch.

store(Port, Main) ->
    Ch = open(Port, <<"store">>),
    #'exchange.declare_ok'{} = amqp_channel:call(Ch, #'exchange.declare'{exchange = <<"readings">>, type = <<"topic">>, durable = true}),
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true}) || Q <- [<<"readings.store">>, <<"commands">>]],
    #'queue.bind_ok'{} = amqp_channel:call(Ch, #'queue.bind'{exchange = <<"readings">>, queue = <<"readings.store">>, routing_key = <<"meter.#">>}),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 50}),
    [#'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = Q}, self()) || Q <- [<<"readings.store">>, <<"commands">>]],
    Main ! ready,
    consume(Ch).
consume(Ch) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag, exchange = X}, #amqp_msg{payload = <<T:64, _/binary>>}} ->
            case X of
                <<"readings">> ->
                    ets:insert(lat, {{erlang:monotonic_time(), Tag}, erlang:system_time(millisecond) - T}),
                    ets:update_counter(load, stored, 1);
                _ -> ets:update_counter(load, commands, 1)
            end,
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            consume(Ch);
        _ -> consume(Ch)
    end.

commander(Port) ->
    Ch = open(Port, <<"commander">>),
    command(Ch).
command(Ch) ->
    timer:sleep(120 + rand:uniform(120)),
    ok = amqp_channel:cast(Ch, #'basic.publish'{routing_key = <<"commands">>}, #amqp_msg{payload = <<(erlang:system_time(millisecond)):64, (rand:bytes(60))/binary>>}),
    command(Ch).

concentrator(Port, I) ->
    User = <<"concentrator", (integer_to_binary(I))/binary>>,
    Ch = open(Port, User),
    amqp_channel:call(Ch, #'confirm.select'{}),
    publish(Ch, I).
publish(Ch, I) ->
    timer:sleep(2000 + rand:uniform(2500)),
    Key = <<"meter.", (integer_to_binary(I))/binary, ".", (integer_to_binary(rand:uniform(40)))/binary>>,
    ok = amqp_channel:call(Ch, #'basic.publish'{exchange = <<"readings">>, routing_key = Key},
                           #amqp_msg{props = #'P_basic'{delivery_mode = 2}, payload = <<(erlang:system_time(millisecond)):64, (rand:bytes(300))/binary>>}),
    ets:update_counter(load, published, 1),
    true = amqp_channel:wait_for_confirms(Ch, 60),
    publish(Ch, I).

report() ->
    timer:sleep(5000),
    L = lists:sort([V || {_, V} <- ets:tab2list(lat)]),
    ets:delete_all_objects(lat),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~0p readings on the way: n ~p median ~p ms max ~p ms~n", [lists:sort(ets:tab2list(load)), length(L),
        case L of [] -> none; _ -> lists:nth(length(L) div 2 + 1, L) end, case L of [] -> none; _ -> lists:last(L) end]), [append]),
    report().
