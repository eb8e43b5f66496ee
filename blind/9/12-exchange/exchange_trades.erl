%% The last 200000 trades.
-module(exchange_trades).
-behaviour(gen_server).
-export([start_link/0, add/2, last/1, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
add(N, Trade) ->
    ets:insert(exchange_trades, {N, Trade}),
    ets:delete(exchange_trades, N - 200000).
last(K) -> last(ets:last(exchange_trades), K).
last(_, 0) -> [];
last('$end_of_table', _) -> [];
last(N, K) -> [ets:lookup(exchange_trades, N) | last(ets:prev(exchange_trades, N), K - 1)].
init([]) ->
    ets:new(exchange_trades, [named_table, public, ordered_set]),
    [ets:insert(exchange_trades, {N, {yesterday, N rem 6, 100 + N rem 17, 5, <<"settled at the close of the day before">>}}) || N <- lists:seq(-199999, 0)],
    {ok, []}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
