-module(pharmacy_stock).
-behaviour(gen_server).
-export([start_link/0, stock/1, price/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
stock(N) -> gen_server:call(?MODULE, {stock, N}).
price(N) -> [{_, P}] = ets:lookup(?MODULE, N rem 3000), P.
init([]) ->
    ets:new(?MODULE, [named_table, {read_concurrency, true}]),
    [ets:insert(?MODULE, {N, 100 + N}) || N <- lists:seq(0, 2999)],
    {ok, #{}}.
handle_call({stock, N}, _, S) -> {reply, maps:get(N, S, 50), S#{N => max(0, maps:get(N, S, 50) - 1)}}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
