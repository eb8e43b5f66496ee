-module(studios_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10},
          [#{id => M, start => {M, start_link, []}}
           || M <- [studios_events, studios_store, studios_prices, studios_calendar, studios_listener]]}}.
