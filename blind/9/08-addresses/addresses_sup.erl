-module(addresses_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 10, period => 10},
          [#{id => M, start => {M, start_link, []}} || M <- [addresses_countries, addresses_usage, addresses_listener]]}}.
