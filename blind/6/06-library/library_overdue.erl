%% Looks for overdue loans in small portions.
-module(library_overdue).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(1000, self(), look), {ok, {1, 0}}.
handle_call(found, _, S = {_, N}) -> {reply, N, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(look, {At, N}) ->
    Found = length([C || C <- lists:seq(At, At + 199), [L] <- [mnesia:dirty_read(loan, C)], element(5, L) < 2000]),
    erlang:send_after(500, self(), look),
    {noreply, {case At > 180000 of true -> 1; false -> At + 200 end, N + Found}}.
