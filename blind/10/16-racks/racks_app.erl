-module(racks_app).
-behaviour(application).
-export([start/2, stop/1]).

start(_, _) ->
    {ok, Sup} = racks_sup:start_link(),
    [racks_sessions:open(<<"host", (integer_to_binary(I))/binary>>) || I <- lists:seq(0, 699)],
    {ok, Sup}.

stop(_) -> ok.
