-module(tours_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> tours_sup:start_link().
stop(_) -> ok.
