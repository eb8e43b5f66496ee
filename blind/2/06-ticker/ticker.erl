%% Prices come in, orders are answered. Plain processes.
-module(ticker).
-export([start/0, times/0, feed/1, order_desk/0, client/1, candles/0]).

start() ->
    spawn(fun() ->
        register(ticker, self()),
        ets:new(prices, [named_table, public, set, {read_concurrency, true}]),
        ets:new(candles, [named_table, public, ordered_set]),
        ets:new(times, [named_table, public, {write_concurrency, true}]),
        ets:insert(times, [{n, 0}, {us, 0}, {max, 0}]),
        [ets:insert(prices, {I, 1000 + I}) || I <- lists:seq(1, 3000)],
        %% "the feed must never lag": since the outage of last year
        [register(list_to_atom("feed_" ++ X), spawn_opt(?MODULE, feed, [X], [link, {priority, high}]))
         || X <- ["xetra", "lse", "nyse"]],
        [register(list_to_atom("desk_" ++ integer_to_list(I)), spawn_link(?MODULE, order_desk, [])) || I <- lists:seq(1, 4)],
        register(candles, spawn_link(?MODULE, candles, [])),
        [spawn_link(?MODULE, client, [I]) || I <- lists:seq(1, 200)],
        receive stop -> ok end
    end).

%% every second a packet of quotes of the exchange: unpack, check, put in
feed(Name) ->
    T = erlang:monotonic_time(millisecond),
    timer:sleep(1000 - erlang:system_time(millisecond) rem 1000),
    Packet = quotes(erlang:phash2({Name, T}), 6000, []),
    store(lists:keysort(1, normalize(Packet, [])), #{}),
    feed(Name).

quotes(_, 0, A) -> A;
quotes(X, N, A) ->
    Y = (X * 1103515245 + 12345) band 16#7fffffff,
    quotes(Y, N - 1, [{Y rem 3000 + 1, integer_to_list(Y rem 100000 + 1), "," ++ integer_to_list(N)} | A]).

normalize([], A) -> A;
normalize([{Id, P, S} | T], A) ->
    V = list_to_integer(P),
    normalize(T, [{Id, V, check(12000, V, length(S))} | A]).

%% the exchange's check sum
check(0, _, K) -> K;
check(N, V, K) -> check(N - 1, V, (K * 31 + V * N) rem 1000003).

store([], _) -> ok;
store([{Id, V, K} | T], M) ->
    maps:get(Id, M, 0) =/= K andalso ets:insert(prices, {Id, V}),
    store(T, M#{Id => K}).

order_desk() ->
    receive
        {order, From, Ref, Id, N} ->
            [{_, P}] = ets:lookup(prices, Id),
            Fee = lists:foldl(fun(I, A) -> (A + P * I) rem 9973 end, 0, lists:seq(1, 5000)),
            From ! {Ref, P * N + Fee},
            order_desk()
    end.

client(I) ->
    timer:sleep(200 + rand:uniform(400)),
    T = erlang:monotonic_time(microsecond),
    Ref = make_ref(),
    list_to_existing_atom("desk_" ++ integer_to_list(I rem 4 + 1)) ! {order, self(), Ref, rand:uniform(3000), rand:uniform(90)},
    receive {Ref, _} -> ok end,
    D = erlang:monotonic_time(microsecond) - T,
    ets:update_counter(times, n, 1), ets:update_counter(times, us, D),
    D > 100000 andalso ets:update_counter(times, late, 1, {late, 0}),
    D > ets:lookup_element(times, max, 2) andalso ets:insert(times, {max, D}),
    client(I).

candles() ->
    timer:sleep(500),
    Now = erlang:system_time(second),
    [ets:insert(candles, {{Id, Now}, P}) || {Id, P} <- ets:lookup(prices, rand:uniform(3000))],
    ets:select_delete(candles, [{{{'_', '$1'}, '_'}, [{'<', '$1', Now - 120}], [true]}]),
    candles().

%% {orders, average ms, later than 100 ms, maximum ms} since the last call
times() ->
    V = fun(K) -> case ets:lookup(times, K) of [{_, X}] -> X; [] -> 0 end end,
    R = {V(n), V(us) / max(1, V(n)) / 1000, V(late), V(max) / 1000},
    ets:insert(times, [{n, 0}, {us, 0}, {late, 0}, {max, 0}]),
    R.
