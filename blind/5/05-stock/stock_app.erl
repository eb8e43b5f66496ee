-module(stock_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) -> ok = stock_db:prepare(), stock_sup:start_link().
stop(_) -> ok.
