-module(bikes_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> bikes_sup:start_link().
stop(_) -> ok.
