-module(tiles_app).
-behaviour(application).
-export([start/2, stop/1]).

start(_, _) ->
    {ok, Sup} = tiles_sup:start_link(),
    [tiles_areas:watch(I rem 100) || I <- lists:seq(1, 20000)],
    {ok, Sup}.

stop(_) -> ok.
