%% Where the scooters are, by square of the town, and the history of the last 60 places of each of 4000 scooters.
-module(scooter_places).
-behaviour(gen_server).
-export([start_link/0, at/3, near/2, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

at(S, X, Y) ->
    N = ets:update_counter(scooter_count, S, {2, 1, 59, 0}, {S, 0}),
    ets:insert(scooter_history, {{S, N}, X, Y, erlang:system_time(second), <<"report of the scooter">>}),
    ets:insert(scooter_now, {S, X, Y}).

near(X, Y) ->
    {_, _, Found} = lists:foldl(fun(I, {A, B, N}) ->
        case ets:lookup(scooter_now, <<"s", (integer_to_binary((I * 37 + X + Y) rem 500))/binary>>) of
            [{_, SX, SY}] when abs(SX - X) + abs(SY - Y) < 300 -> {A, B, N + 1};
            _ -> {A, B, N}
        end
    end, {X, Y, 0}, lists:seq(1, 60)),
    Found.

init([]) ->
    [ets:new(T, [named_table, public, {write_concurrency, true}]) || T <- [scooter_count, scooter_history, scooter_now]],
    [ets:insert(scooter_history, {{<<"s", (integer_to_binary(S))/binary>>, N}, S rem 1000, N, 0, <<"report of the scooter">>}) || S <- lists:seq(0, 3999), N <- lists:seq(0, 59)],
    {ok, #{}}.

handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
