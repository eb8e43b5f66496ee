-module(thermostats_hourly).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(3000, self(), sum), {ok, []}.
handle_call(get, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(sum, S) ->
    erlang:send_after(3000, self(), sum),
    Sum = ets:foldl(fun({_, T, _, _}, {N, A}) -> {N + 1, A + T} end, {0, 0.0}, thermostats_rooms),
    {noreply, lists:sublist([Sum | S], 200)}.
