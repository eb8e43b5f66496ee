%% Machines and workshops: 5000 queues, of which 25 are in use.
-module(workshops).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(load, [{published, 0}, {done, 0}]),
    Parts = [lists:seq(I, 4999, 5) || I <- lists:seq(0, 4)],
    Self = self(),
    Pids = [spawn_link(fun() -> declare(Port, P), Self ! {declared, self()}, receive stop -> ok end end) || P <- Parts],
    [receive {declared, P} -> ok end || P <- Pids],
    ets:insert(load, {declared, 5000}),
    [spawn_link(fun() -> consumer(Port, Q) end) || Q <- busy()],
    [spawn_link(fun() -> timer:sleep(I * 100), publisher(Port) end) || I <- lists:seq(1, 15)],
    report().

name(I) -> list_to_binary(io_lib:format("workshop.~w.machine.~w", [I div 50, I rem 50])).
busy() -> [name(I * 200) || I <- lists:seq(0, 24)].

open(Port, Name) ->
    case amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30,
            client_properties = [{<<"connection_name">>, longstr, Name}]}, Name) of
        {ok, C} -> {ok, Ch} = amqp_connection:open_channel(C), {C, Ch};
        {error, _} -> timer:sleep(1000), open(Port, Name)
    end.

declare(Port, Part) ->
    {C, Ch} = open(Port, <<"setup">>),
    [#'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = name(I)}) || I <- Part],
    amqp_connection:close(C).

publisher(Port) ->
    {_, Ch} = open(Port, <<"planning">>),
    publish(Ch).

publish(Ch) ->
    Q = lists:nth(rand:uniform(25), busy()),
    amqp_channel:cast(Ch, #'basic.publish'{routing_key = Q}, #amqp_msg{payload = rand:bytes(300)}),
    ets:update_counter(load, published, 1),
    timer:sleep(50 + rand:uniform(100)),
    publish(Ch).

consumer(Port, Q) ->
    {_, Ch} = open(Port, <<"machine ", Q/binary>>),
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
    file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~0p~n", [ets:tab2list(load)]), [append]),
    timer:sleep(3000),
    report().
