-module(scooters_app).
-behaviour(application).
-export([start/2, stop/1]).

start(_, _) ->
    rand:seed(exsss),
    {ok, Sup} = scooters_sup:start_link(),
    %% rides that were under way when the service was last stopped
    scooters_dispatch:recover(16000),
    {ok, Sup}.

stop(_) -> ok.
