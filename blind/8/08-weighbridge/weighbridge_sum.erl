%% adds up the weights; keeps how long the last of a burst had to wait
-module(weighbridge_sum).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> {ok, #{sum => 0, n => 0, worst_us => 0}}.
handle_call(state, _, S) -> {reply, S, S#{worst_us := 0}}.
handle_cast(_, S) -> {noreply, S}.
handle_info({weight, I, W, At}, S = #{sum := X, n := N, worst_us := M}) ->
    _ = erlang:phash2({I, W}),
    {noreply, S#{sum := X + W, n := N + 1, worst_us := max(M, erlang:convert_time_unit(erlang:monotonic_time() - At, native, microsecond))}}.
