-module(parcels_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> ok = parcels_db:create(), parcels_sup:start_link().
stop(_) -> ok.
