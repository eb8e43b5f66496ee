%% Estimates the crowd in each of the twelve areas, ten times a second.
-module(turnstile_crowd).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(100, self(), estimate), {ok, #{}}.
handle_call(crowd, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(estimate, S) ->
    erlang:send_after(100, self(), estimate),
    {noreply, lists:foldl(fun({G, N}, M) -> maps:update_with(G rem 12, fun(X) -> X * 0.9 + N end, N, M) end, S, ets:tab2list(turnstile_counts))}.
