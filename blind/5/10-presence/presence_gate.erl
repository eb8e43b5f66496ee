%% users come: 60,000 at the start (after the maintenance window), then some 400 a second come and as many go
-module(presence_gate).
-behaviour(gen_server).
-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    self() ! {first, 1},
    {ok, 1}.
handle_call(_, _, N) -> {reply, ok, N}.
handle_cast(_, N) -> {noreply, N}.
handle_info({first, K}, N) when K =< 60 ->
    %% the first ones have been there for a while, as seen from later
    [presence_user:start(N + I, 2000 + round(293000 * (1 - math:sqrt(rand:uniform())))) || I <- lists:seq(0, 999)],
    erlang:send_after(80, self(), {first, K + 1}),
    {noreply, N + 1000};
handle_info({first, _}, N) ->
    {ok, _} = timer:send_interval(25, come),
    {noreply, N};
handle_info(come, N) ->
    [presence_user:start(N + I, rand:uniform(295000)) || I <- lists:seq(0, 9)],
    {noreply, N + 10}.
