-module(scooter_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => places, start => {scooter_places, start_link, []}},
           #{id => rides, start => {scooter_rides, start_link, []}},
           #{id => listener, start => {scooter_listener, start_link, []}}]}}.
