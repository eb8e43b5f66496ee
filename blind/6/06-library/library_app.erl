-module(library_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> library_store:tables(), library_sup:start_link().
stop(_) -> ok.
