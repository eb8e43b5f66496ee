%% The order book. One process on purpose: the order of the orders is the law.
-module(exchange_book).
-behaviour(gen_server).
-export([start_link/0, order/4, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
order(Side, Paper, Price, Amount) -> gen_server:call(?MODULE, {order, Side, Paper, Price, Amount}).
init([]) -> {ok, #{next => 1, books => #{P => {gb_trees:empty(), gb_trees:empty()} || P <- lists:seq(0, 5)}}}.
handle_call({order, Side, Paper, Price, Amount}, _, #{next := N, books := Books} = S) ->
    {Traded, Book} = match(Side, Price, Amount, N, maps:get(Paper, Books)),
    [exchange_trades:add(N, {Paper, Price, Amount, Side}) || Traded],
    {reply, {N, Traded}, S#{next := N + 1, books := Books#{Paper := Book}}}.
handle_cast(_, S) -> {noreply, S}.
match(buy, Price, Amount, N, {Buys, Sells}) ->
    case gb_trees:is_empty(Sells) of
        false ->
            {{P, _} = K, _, Rest} = gb_trees:take_smallest(Sells),
            case P =< Price of
                true -> {true, {Buys, Rest}};
                false -> {false, {trim(gb_trees:insert({-Price, N}, Amount, Buys)), gb_trees:enter(K, 1, Rest)}}
            end;
        true -> {false, {trim(gb_trees:insert({-Price, N}, Amount, Buys)), Sells}}
    end;
match(sell, Price, Amount, N, {Buys, Sells}) ->
    case gb_trees:is_empty(Buys) of
        false ->
            {{P, _} = K, _, Rest} = gb_trees:take_smallest(Buys),
            case -P >= Price of
                true -> {true, {Rest, Sells}};
                false -> {false, {gb_trees:enter(K, 1, Rest), trim(gb_trees:insert({Price, N}, Amount, Sells))}}
            end;
        true -> {false, {Buys, trim(gb_trees:insert({Price, N}, Amount, Sells))}}
    end.
%% the worst offers go when there are more than 3000
trim(T) -> case gb_trees:size(T) > 3000 of true -> {_, _, T1} = gb_trees:take_largest(T), T1; false -> T end.
