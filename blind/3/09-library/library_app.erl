-module(library_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) ->
    {ok, Sup} = library_sup:start_link(),
    [{ok, _} = library_readers:start_reader(I) || I <- lists:seq(1, 9000)],
    {ok, Sup}.
stop(_) -> ok.
