%% Demand makes the price.
-module(studios_prices_h).
-behaviour(gen_event).
-export([init/1, handle_event/2, handle_call/2]).
init([]) -> {ok, []}.
handle_event({booked, Studio, _}, S) -> ok = studios_prices:demand(Studio), {ok, S};
handle_event(_, S) -> {ok, S}.
handle_call(_, S) -> {ok, ok, S}.
