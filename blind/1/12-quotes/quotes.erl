%% Stock quotes to subscribers over TCP. Plain processes:
%%   quotes_feed    takes the exchange's ticks (here: makes them up)
%%   quotes_hub     knows the subscribers, sends each quote to all of them
%%   quotes_book    keeps the last quote of each symbol
%%   quotes_accept  takes new subscribers
-module(quotes).
-export([start/0, port/0, hub/2, feed/1, book/1, last/1]).

start() ->
    spawn(fun() ->
        register(quotes_main, self()),
        process_flag(trap_exit, true),
        {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127,0,0,1}}, {reuseaddr, true},
                                     {nodelay, true}, {sndbuf, 32768}, {backlog, 64}]),
        main(L)
    end),
    ok.

port() -> {ok, P} = inet:port(persistent_term:get(quotes_listener)), P.

main(L) ->
    persistent_term:put(quotes_listener, L),
    register(quotes_book, spawn_link(fun() -> book(ets:new(quotes_last, [named_table, {read_concurrency, true}])) end)),
    register(quotes_hub, spawn_link(?MODULE, hub, [[], 0])),
    register(quotes_accept, spawn_link(fun() -> accept(L) end)),
    register(quotes_feed, spawn_link(?MODULE, feed, [0])),
    receive {'EXIT', _, Why} -> exit(Why) end.

accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Reader = spawn(fun() -> receive go -> reader(S) end end),
    ok = gen_tcp:controlling_process(S, Reader),
    Reader ! go,
    quotes_hub ! {subscribe, S},
    accept(L).

%% a subscriber may ask for the last quote of a symbol
reader(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, <<"LAST ", Sym/binary>>} ->
            gen_tcp:send(S, last(string:trim(Sym))),
            reader(S);
        {ok, _} -> reader(S);
        {error, _} -> quotes_hub ! {unsubscribe, S}
    end.

hub(Subs, Sent) ->
    receive
        {quote, Q} ->
            Line = format(Q),
            [gen_tcp:send(S, Line) || S <- Subs],
            quotes_book ! Q,
            hub(Subs, Sent + 1);
        {subscribe, S} -> hub([S | Subs], Sent);
        {unsubscribe, S} -> hub(lists:delete(S, Subs), Sent);
        {stats, From} -> From ! {stats, length(Subs), Sent}, hub(Subs, Sent)
    end.

format({Sym, Time, Bid, Ask, Depth}) ->
    iolist_to_binary([Sym, $ , integer_to_binary(Time), $ , integer_to_binary(Bid), $ , integer_to_binary(Ask),
                      [[$ , integer_to_binary(P), $x, integer_to_binary(V)] || {P, V} <- Depth], $\n]).

book(T) ->
    receive {Sym, _, _, _, _} = Q -> ets:insert(T, Q), _ = Sym, book(T) end.

last(Sym) ->
    case ets:lookup(quotes_last, Sym) of [Q] -> format(Q); [] -> <<"?\n">> end.

feed(N) ->
    Sym = list_to_binary(io_lib:format("SYM~3..0b", [rand:uniform(400)])),
    Bid = 10000 + rand:uniform(500),
    Depth = [{Bid - I, rand:uniform(900)} || I <- lists:seq(1, 25)],
    quotes_hub ! {quote, {Sym, os:system_time(millisecond), Bid, Bid + 2, Depth}},
    timer:sleep(4),
    feed(N + 1).
