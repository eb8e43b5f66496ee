-module(loans_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) ->
    ok = loans_store:prepare(),
    loans_sup:start_link().
stop(_) -> ok.
