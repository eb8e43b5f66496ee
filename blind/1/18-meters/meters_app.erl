-module(meters_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_Type, _Args) ->
    {ok, Sup} = meters_sup:start_link(),
    {ok, N} = application:get_env(meters, meters),
    [{ok, _} = meters_session_sup:open(I) || I <- lists:seq(1, N)],
    {ok, Sup}.
stop(_) -> ok.
