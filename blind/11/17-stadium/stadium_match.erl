%% A match: thirty times a second the positions of the players go to all who follow it.
-module(stadium_match).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link(I) -> gen_server:start_link(?MODULE, I, []).

init(I) ->
    erlang:send_after(33, self(), tick),
    {ok, #{match => <<"m", (integer_to_binary(I))/binary>>, minute => 0, players => [{P, P * 3, P * 2, 0} || P <- lists:seq(1, 22)]}}.

handle_call(_, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.

handle_info(tick, #{match := M, minute := T, players := Ps} = S) ->
    erlang:send_after(33, self(), tick),
    Moved = [{P, (X + P + T) rem 105, (Y + P) rem 68, (Speed + T) rem 30} || {P, X, Y, Speed} <- Ps],
    [Pid ! {positions, M, T, Moved} || Pid <- pg:get_local_members(stadium_followers, M)],
    {noreply, S#{minute := T + 1, players := Moved}}.
