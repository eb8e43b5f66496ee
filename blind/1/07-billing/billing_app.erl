-module(billing_app).
-behaviour(application).
-export([start/2, stop/1]).

start(_Type, _Args) ->
    ok = billing_db:ensure_tables(),
    billing_sup:start_link().

stop(_State) -> ok.
