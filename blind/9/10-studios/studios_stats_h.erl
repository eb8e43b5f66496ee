-module(studios_stats_h).
-behaviour(gen_event).
-export([init/1, handle_event/2, handle_call/2]).
init([]) -> {ok, #{}}.
handle_event(E, S) -> {ok, maps:update_with(element(1, E), fun(N) -> N + 1 end, 1, S)}.
handle_call(stats, S) -> {ok, S, S}.
