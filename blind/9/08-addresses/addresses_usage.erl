%% Checks by country, for the bill of the partner.
-module(addresses_usage).
-behaviour(gen_server).
-export([start_link/0, count/1, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
count(Country) -> gen_server:cast(?MODULE, {count, Country}).
init([]) -> {ok, #{}}.
handle_call(all, _, S) -> {reply, S, S}.
handle_cast({count, C}, S) -> {noreply, maps:update_with(C, fun(N) -> N + 1 end, 1, S)}.
