-module(stock_till).
-behaviour(gen_server).
-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(N) -> gen_server:start_link(?MODULE, N, []).
init(N) ->
    erlang:send_after(1000 + N * 7, self(), customer),
    {ok, {N, 0}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(customer, {N, Sold}) ->
    {Us, ok} = timer:tc(fun() -> [stock_db:sell(N, rand:uniform(20000), 1) || _ <- lists:seq(1, 3)], ok end),
    stock_report:sold(Us),
    erlang:send_after(60, self(), customer),
    {noreply, {N, Sold + 3}}.
