%% A transfer must not hold a connection's process for more than four seconds: the clock ends it then.
-module(depot_clock).
-behaviour(gen_server).
-export([start_link/0, begins/1, ends/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
begins(P) -> gen_server:cast(?MODULE, {begins, P}).
ends(P) -> gen_server:cast(?MODULE, {ends, P}).
init([]) -> {ok, #{}}.
handle_call(ended, _, S) -> {reply, maps:get(ended, S, 0), S}.
handle_cast({begins, P}, S) -> {noreply, S#{P => erlang:start_timer(4000, self(), P)}};
handle_cast({ends, P}, S) -> case maps:take(P, S) of {T, S1} -> erlang:cancel_timer(T), {noreply, S1}; error -> {noreply, S} end.
handle_info({timeout, T, P}, S) ->
    case S of
        #{P := T} -> unlink(P), exit(P, kill), {noreply, maps:update_with(ended, fun(N) -> N + 1 end, 1, maps:remove(P, S))};
        _ -> {noreply, S}
    end.
