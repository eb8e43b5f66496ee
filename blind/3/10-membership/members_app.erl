-module(members_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> ok = members_db:open(), members_sup:start_link().
stop(_) -> ok.
