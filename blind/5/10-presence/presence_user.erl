%% one user on line
-module(presence_user).
-behaviour(gen_server).
-export([start/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
start(User, Stay) -> gen_server:start(?MODULE, {User, Stay}, [{hibernate_after, 300}]).
init({User, Stay}) ->
    presence_watch:here(User, self()),
    erlang:send_after(Stay, self(), leave),
    erlang:send_after(10000 + rand:uniform(20000), self(), look),
    {ok, {User, []}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(look, {User, _}) ->
    Online = [F || F <- presence_friends:of_user(User), presence_watch:state(F)],
    erlang:send_after(20000, self(), look),
    {noreply, {User, lists:sublist(Online, 5)}};
handle_info(leave, S) -> {stop, normal, S}.
