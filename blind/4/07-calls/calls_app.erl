-module(calls_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> calls_top:start_link().
stop(_) -> ok.
