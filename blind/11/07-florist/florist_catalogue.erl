%% What the shop has, what it costs and what it weighs; takes the orders.
-module(florist_catalogue).
-behaviour(gen_server).
-export([start_link/0, price/1, stock/1, weight/1, checkout/1, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

price(F) -> gen_server:call(?MODULE, {price, F}, 20000).
stock(F) -> gen_server:call(?MODULE, {stock, F}, 20000).
weight(F) -> gen_server:call(?MODULE, {weight, F}, 600).
checkout(Fs) -> gen_server:call(?MODULE, {checkout, Fs}, 20000).

init([]) ->
    {ok, #{goods => maps:from_list([{<<"f", (integer_to_binary(I))/binary>>, {300 + I, 50 + I rem 90, 20 + I rem 300}} || I <- lists:seq(0, 799)]),
           orders => 0}}.

handle_call({price, F}, _, #{goods := G} = S) -> {reply, element(1, maps:get(F, G)), S};
handle_call({stock, F}, _, #{goods := G} = S) -> {reply, element(2, maps:get(F, G)), S};
handle_call({weight, F}, _, #{goods := G} = S) -> {reply, element(3, maps:get(F, G)), S};
handle_call({checkout, Fs}, _, #{goods := G, orders := N} = S) ->
    Sum = lists:sum([element(1, maps:get(F, G)) || F <- Fs]),
    Postage = florist_postage:cost(Fs),
    {reply, Sum + Postage, S#{orders := N + 1}}.

handle_cast(_, S) -> {noreply, S}.
