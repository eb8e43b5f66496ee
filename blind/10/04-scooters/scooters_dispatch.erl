%% Starts rides. Keeps some process slots free, so that operators can still log in.
-module(scooters_dispatch).
-behaviour(gen_server).
-export([start_link/0, unlock/1, recover/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
-define(KEEP, 60).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
unlock(Scooter) -> gen_server:call(?MODULE, {unlock, Scooter}, infinity).
recover(N) -> gen_server:call(?MODULE, {recover, N}, infinity).

init([]) ->
    erlang:send_after(250, self(), tick),
    {ok, #{waiting => queue:new(), refused => 0, started => 0}}.

handle_call({unlock, Scooter}, From, #{waiting := W} = S) ->
    {noreply, S#{waiting := queue:in({From, Scooter, erlang:monotonic_time(millisecond)}, W)}};
handle_call({recover, N}, _, S) ->
    [{ok, _} = supervisor:start_child(scooters_ride_sup, [I, rest()]) || I <- lists:seq(1, N)],
    {reply, ok, S}.

handle_cast(_, S) -> {noreply, S}.

handle_info(tick, S) ->
    erlang:send_after(250, self(), tick),
    Free = erlang:system_info(process_limit) - erlang:system_info(process_count) - ?KEEP,
    {noreply, refuse_old(go(Free, S))}.

go(Free, #{waiting := W, started := N} = S) when Free > 0 ->
    case queue:out(W) of
        {empty, _} -> S;
        {{value, {From, Scooter, _}}, W1} ->
            {ok, _} = supervisor:start_child(scooters_ride_sup, [Scooter, 120 + rand:uniform(160)]),
            gen_server:reply(From, ok),
            go(Free - 1, S#{waiting := W1, started := N + 1})
    end;
go(_, S) -> S.

refuse_old(#{waiting := W, refused := R} = S) ->
    Now = erlang:monotonic_time(millisecond),
    case queue:peek(W) of
        {value, {From, _, At}} when Now - At > 1000 ->
            gen_server:reply(From, later),
            refuse_old(S#{waiting := queue:drop(W), refused := R + 1});
        _ -> S
    end.

%% what is left of a ride that is under way: long rides are met more often
rest() ->
    Long = 120 + rand:uniform(160),
    case rand:uniform() < Long / 280 of
        true -> rand:uniform() * Long;
        false -> rest()
    end.
