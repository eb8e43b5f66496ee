%% takes the prices of an exchange, gives them to the local books and to the archive on another node
-module(quotes).
-export([start/0, init/0, feed/1, fanout/0, book/1, desk/1, audit/0]).

start() -> spawn(?MODULE, init, []).

init() ->
    register(quotes_main, self()),
    process_flag(trap_exit, true),
    Archive = list_to_atom(os:getenv("ARCHIVE_NODE")),
    put(archive, Archive),
    true = net_kernel:connect_node(Archive),
    ets:new(quotes_last, [named_table, public, {read_concurrency, true}]),
    ets:new(quotes_delay, [named_table, public]),
    persistent_term:put(quotes_archive, {quotes_archive, Archive}),
    [spawn_link(?MODULE, book, [N]) || N <- lists:seq(1, 8)],
    spawn_link(?MODULE, fanout, []),
    spawn_link(?MODULE, audit, []),
    timer:sleep(200),
    [spawn_link(?MODULE, feed, [N]) || N <- lists:seq(1, 5)],
    [spawn_link(?MODULE, desk, [N]) || N <- lists:seq(1, 10)],
    wait().
wait() -> receive {'EXIT', P, R} -> logger:error("~p ended: ~p", [P, R]), wait() end.

%% one line of the exchange: a block of prices every 20 ms, with the raw frame as the exchange sent it
feed(N) ->
    put(raw, binary:copy(<<N, 1:64>>, 7000)),
    feed_loop(N).
feed_loop(N) ->
    Prices = [{N * 1000 + I, 100 + I / 7, rand:uniform(1000)} || I <- lists:seq(1, 60)],
    fanout ! {block, N, erlang:monotonic_time(), Prices, get(raw)},
    timer:sleep(20),
    feed_loop(N).

%% each block to the books and the archive
fanout() ->
    register(fanout, self()),
    fanout(0).
fanout(Count) ->
    receive
        {block, N, T, Prices, Raw} ->
            [whereis(list_to_atom("book_" ++ integer_to_list(I))) ! {prices, N, T, Prices} || I <- lists:seq(1, 8)],
            persistent_term:get(quotes_archive) ! {block, N, T, Prices, Raw},
            fanout(Count + 1);
        {count, From} ->
            From ! {count, Count},
            fanout(Count)
    end.

book(N) ->
    register(list_to_atom("book_" ++ integer_to_list(N)), self()),
    book_loop(N).
book_loop(N) ->
    receive
        {prices, _, T, Prices} ->
            [ets:insert(quotes_last, {Id, P, V}) || {Id, P, V} <- Prices, Id rem 8 =:= N - 1],
            ets:insert(quotes_delay, {N, erlang:convert_time_unit(erlang:monotonic_time() - T, native, millisecond)}),
            book_loop(N)
    end.

%% people at the desks look prices up
desk(N) ->
    [ets:lookup(quotes_last, 1000 * rand:uniform(5) + rand:uniform(60)) || _ <- lists:seq(1, 20)],
    timer:sleep(30 + N),
    desk(N).

audit() ->
    timer:sleep(1000),
    Delays = [D || {_, D} <- ets:tab2list(quotes_delay)],
    put(worst, lists:max([0 | Delays])),
    audit().
