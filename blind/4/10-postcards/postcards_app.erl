-module(postcards_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> postcards_sup:start_link().
stop(_) -> ok.
