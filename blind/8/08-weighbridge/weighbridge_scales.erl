%% 3000 scales send what they have every two seconds at the same time (they are synchronised on purpose)
-module(weighbridge_scales).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    Pids = [spawn_link(fun() -> scale(I) end) || I <- lists:seq(1, 3000)],
    timer:send_interval(2000, tick),
    {ok, Pids}.
scale(I) -> receive tick -> weighbridge_sum ! {weight, I, rand:uniform(40000), erlang:monotonic_time()} end, scale(I).
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(tick, S) -> [P ! tick || P <- S], {noreply, S}.
