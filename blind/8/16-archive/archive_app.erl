-module(archive_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> archive_sup:start_link().
stop(_) -> ok.
