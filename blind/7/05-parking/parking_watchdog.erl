%% Kicks the hardware watchdog (here: a counter) ten times a second, so it has priority high; it does next to nothing.
-module(parking_watchdog).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], [{spawn_opt, [{priority, high}]}]).
init([]) -> erlang:send_after(100, self(), kick), {ok, {0, 0, erlang:monotonic_time(millisecond)}}.
handle_call(late, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(kick, {N, Worst, Last}) ->
    erlang:send_after(100, self(), kick),
    Now = erlang:monotonic_time(millisecond),
    {noreply, {N + 1, max(Worst, Now - Last - 100), Now}}.
