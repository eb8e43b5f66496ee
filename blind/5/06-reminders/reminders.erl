%% Reminders: each waits a while in reminders.wait (no consumer: its messages expire into reminders.due), then is sent out.
-module(reminders).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, error),
    ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(load, [{published, 0}, {sent, 0}, {booked, 0}, {late_ms_max, 0}]),
    {C, Ch} = open(Port, <<"declare">>),
    declare(Ch, <<"reminders.wait">>, [{<<"x-message-ttl">>, long, 25000}, {<<"x-dead-letter-exchange">>, longstr, <<>>}, {<<"x-dead-letter-routing-key">>, longstr, <<"reminders.due">>}]),
    declare(Ch, <<"reminders.due">>, []),
    declare(Ch, <<"reminders.booking">>, []),
    declare(Ch, <<"reminders.last">>, [{<<"x-max-length">>, long, 6000}]),
    #'exchange.declare_ok'{} = amqp_channel:call(Ch, #'exchange.declare'{exchange = <<"reminders.new">>, type = <<"fanout">>}),
    [#'queue.bind_ok'{} = amqp_channel:call(Ch, #'queue.bind'{queue = Q, exchange = <<"reminders.new">>}) || Q <- [<<"reminders.wait">>, <<"reminders.last">>, <<"reminders.booking">>]],
    timer:sleep(200),
    amqp_connection:close(C),
    [spawn_link(fun() -> sender(Port) end) || _ <- lists:seq(1, 4)],
    spawn_link(fun() -> booking(Port) end),
    [spawn_link(fun() -> timer:sleep(I * 60), publisher(Port) end) || I <- lists:seq(1, 10)],
    %% 120 sessions of calendars which seldom have something to say
    [spawn_link(fun() -> timer:sleep(I * 40), calendar(Port) end) || I <- lists:seq(1, 120)],
    report().

declare(Ch, Q, Args) -> #'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true, arguments = Args}).

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    {ok, Ch} = amqp_connection:open_channel(C),
    {C, Ch}.

new(Ch) ->
    amqp_channel:cast(Ch, #'basic.publish'{exchange = <<"reminders.new">>},
                      #amqp_msg{props = #'P_basic'{delivery_mode = 1}, payload = <<(erlang:system_time(millisecond)):64, (rand:bytes(400))/binary>>}),
    ets:update_counter(load, published, 1).

publisher(Port) -> {_, Ch} = open(Port, <<"web">>), publish(Ch).
publish(Ch) -> new(Ch), timer:sleep(22 + rand:uniform(20)), publish(Ch).

calendar(Port) -> {_, Ch} = open(Port, <<"calendar">>), calendar_loop(Ch).
calendar_loop(Ch) -> timer:sleep(5000 + rand:uniform(20000)), new(Ch), calendar_loop(Ch).

sender(Port) ->
    {_, Ch} = open(Port, <<"sender">>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 50}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = <<"reminders.due">>}, self()),
    send(Ch).
send(Ch) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, #amqp_msg{payload = <<T:64, _/binary>>}} ->
            Late = erlang:system_time(millisecond) - T - 25000,
            [{_, Max}] = ets:lookup(load, late_ms_max),
            Late > Max andalso ets:insert(load, {late_ms_max, Late}),
            ets:update_counter(load, sent, 1),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Tag}),
            send(Ch);
        _ -> send(Ch)
    end.

%% books in batches: up to 3000 messages stay unacknowledged for three seconds
booking(Port) ->
    {_, Ch} = open(Port, <<"booking">>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 3000}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = <<"reminders.booking">>}, self()),
    erlang:send_after(3000, self(), book),
    book(Ch, 0, 0).
book(Ch, N, Last) ->
    receive
        {#'basic.deliver'{delivery_tag = Tag}, _} -> book(Ch, N + 1, Tag);
        book ->
            N > 0 andalso amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = Last, multiple = true}),
            ets:update_counter(load, booked, N),
            erlang:send_after(3000, self(), book),
            book(Ch, 0, 0);
        _ -> book(Ch, N, Last)
    end.

report() ->
    timer:sleep(1000),
    file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~w~n", [lists:sort(ets:tab2list(load))])),
    report().
