-module(rooms_app).
-behaviour(application).
-export([start/2, stop/1]).

start(_Type, _Args) ->
    {ok, Sup} = rooms_sup:start_link(),
    {ok, N} = application:get_env(rooms, rooms),
    [{ok, _} = rooms_room_sup:open(I) || I <- lists:seq(1, N)],
    {ok, Sup}.
stop(_) -> ok.
