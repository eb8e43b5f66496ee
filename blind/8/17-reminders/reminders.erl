%% Reminders: an appointment is put into reminders.wait and, 40 s later (time to live of that queue), goes by way of
%% the dead letter exchange to reminders.due, whose workers send the message. So some thousands wait at any time.
%% Prompts for 120 doctors' desks go to a queue each. Everybody who loses the connection comes again.
-module(reminders).
-include_lib("amqp_client/include/amqp_client.hrl").
-export([main/0]).

main() ->
    Port = list_to_integer(os:getenv("AMQP_PORT")),
    {ok, _} = application:ensure_all_started(amqp_client),
    logger:set_primary_config(level, none),
    ets:new(load, [public, named_table, {write_concurrency, true}]),
    ets:insert(load, [{sent, 0}, {due, 0}, {desks, 0}, {again, 0}, {late_ms_sum, 0}, {late_ms_max, 0}]),
    {C, Ch} = open(Port, <<"declare">>),
    D = fun(Q, Args) -> #'queue.declare_ok'{} = amqp_channel:call(Ch, #'queue.declare'{queue = Q, durable = true, arguments = Args}) end,
    D(<<"reminders.wait">>, [{<<"x-queue-mode">>, longstr, <<"lazy">>}, {<<"x-message-ttl">>, long, 40000}, {<<"x-dead-letter-exchange">>, longstr, <<>>}, {<<"x-dead-letter-routing-key">>, longstr, <<"reminders.due">>}]),
    D(<<"reminders.due">>, []),
    [D(desk(I), [{<<"x-expires">>, long, 600000}]) || I <- lists:seq(1, 120)],
    amqp_connection:close(C),
    [spawn(fun() -> again(fun() -> practice(Port) end) end) || _ <- lists:seq(1, 10)],
    [spawn(fun() -> again(fun() -> worker(Port) end) end) || _ <- lists:seq(1, 3)],
    [spawn(fun() -> timer:sleep(I * 50), again(fun() -> desk(Port, I) end) end) || I <- lists:seq(1, 120)],
    report().

desk(I) -> <<"desk.", (integer_to_binary(I))/binary>>.
again(F) -> try F() catch _:_ -> ets:update_counter(load, again, 1) end, timer:sleep(1000), again(F).

open(Port, Name) ->
    {ok, C} = amqp_connection:start(#amqp_params_network{host = "127.0.0.1", port = Port, heartbeat = 30,
        client_properties = [{<<"connection_name">>, longstr, Name}]}, Name),
    link(C),
    {ok, Ch} = amqp_connection:open_channel(C),
    erlang:monitor(process, Ch),
    {C, Ch}.

practice(Port) -> process_flag(trap_exit, true), {_, Ch} = open(Port, <<"practice">>), appoint(Ch, 1).
appoint(Ch, N) ->
    P = <<(erlang:system_time(millisecond)):64, (rand:bytes(300))/binary>>,
    Q = case N rem 6 of 0 -> desk(rand:uniform(120)); _ -> <<"reminders.wait">> end,
    ok = amqp_channel:call(Ch, #'basic.publish'{exchange = <<>>, routing_key = Q}, #amqp_msg{payload = P}),
    ets:update_counter(load, sent, 1),
    receive {'DOWN', _, _, _, _} -> exit(gone); {'EXIT', _, _} -> exit(gone) after 40 + rand:uniform(20) -> appoint(Ch, N + 1) end.

worker(Port) ->
    process_flag(trap_exit, true),
    {_, Ch} = open(Port, <<"worker reminders.due">>),
    amqp_channel:call(Ch, #'basic.qos'{prefetch_count = 50}),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = <<"reminders.due">>}, self()),
    work(Ch).
work(Ch) ->
    receive
        {#'basic.deliver'{delivery_tag = T}, #amqp_msg{payload = <<At:64, _/binary>>}} ->
            Late = erlang:system_time(millisecond) - At - 40000,
            ets:update_counter(load, due, 1), ets:update_counter(load, late_ms_sum, Late),
            [{_, M}] = ets:lookup(load, late_ms_max), Late > M andalso ets:insert(load, {late_ms_max, Late}),
            amqp_channel:cast(Ch, #'basic.ack'{delivery_tag = T}), work(Ch);
        {'DOWN', _, _, _, _} -> exit(gone);
        {'EXIT', _, _} -> exit(gone);
        _ -> work(Ch)
    end.

desk(Port, I) ->
    process_flag(trap_exit, true),
    {_, Ch} = open(Port, <<"doctor's desk">>),
    #'basic.consume_ok'{} = amqp_channel:subscribe(Ch, #'basic.consume'{queue = desk(I), no_ack = true}, self()),
    sit().
sit() ->
    receive
        {#'basic.deliver'{}, _} -> ets:update_counter(load, desks, 1), sit();
        {'DOWN', _, _, _, _} -> exit(gone);
        {'EXIT', _, _} -> exit(gone);
        _ -> sit()
    end.

report() ->
    timer:sleep(2000),
    L = lists:sort(ets:tab2list(load)),
    ets:insert(load, {late_ms_max, 0}),
    ok = file:write_file(os:getenv("LOAD_REPORT"), io_lib:format("~p ~0p~n", [erlang:monotonic_time(millisecond), L]), [append]),
    report().
