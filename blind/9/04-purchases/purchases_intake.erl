%% Numbers the orders, keeps the last thousand.
-module(purchases_intake).
-behaviour(gen_server).
-export([start_link/0, take/1, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
take(Order) -> gen_server:call(?MODULE, {take, Order}).
init([]) ->
    ets:new(purchases_orders, [named_table, protected, ordered_set]),
    {ok, 0}.
handle_call({take, {P, _, Total, _} = Order}, _, N) ->
    ok = purchases_limits:check(P, Total),
    ets:insert(purchases_orders, {N + 1, Order}),
    ets:delete(purchases_orders, N - 1000),
    {reply, {ok, N + 1}, N + 1}.
handle_cast(_, N) -> {noreply, N}.
