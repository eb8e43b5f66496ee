%% The orders.
-module(orders_book).
-behaviour(gen_server).
-export([start/0, add/2, state/1, init/1, handle_call/3, handle_cast/2]).

start() -> gen_server:start({local, ?MODULE}, ?MODULE, [], []).

add(Shop, Goods) -> gen_server:call(?MODULE, {add, Shop, Goods}).

state(N) ->
    case ets:lookup(?MODULE, N) of
        [{_, Shop, Goods}] -> {Shop, length(Goods)};
        [] -> none
    end.

init([]) ->
    ets:new(?MODULE, [named_table, protected, {read_concurrency, true}]),
    {ok, 0}.

%% the last 20000 orders are kept
handle_call({add, Shop, Goods}, _, N) ->
    ets:insert(?MODULE, {N rem 20000, Shop, Goods}),
    {reply, N rem 20000, N + 1}.

handle_cast(_, S) -> {noreply, S}.
