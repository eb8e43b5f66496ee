%% A member's account; sleeps most of the time.
-module(exchange_account).
-behaviour(gen_server).
-export([start_link/1, balance/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(I) -> gen_server:start_link(?MODULE, I, [{hibernate_after, 2000}]).
balance(I) -> gen_server:call(ets:lookup_element(exchange_account_pids, I, 2), balance).
init(I) ->
    ets:insert(exchange_account_pids, {I, self()}),
    erlang:send_after(rand:uniform(300000), self(), interest),
    {ok, #{id => I, balance => 100000 + I, history => lists:duplicate(20, {I, deposit, 500})}}.
handle_call(balance, _, S) -> {reply, maps:get(balance, S), S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(interest, S) ->
    erlang:send_after(300000, self(), interest),
    {noreply, S#{balance := maps:get(balance, S) + 1}}.
