-module(scooters_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, top).

init(top) ->
    {ok, {#{strategy => rest_for_one, intensity => 3, period => 10},
          [#{id => rides, type => supervisor, start => {supervisor, start_link, [{local, scooters_ride_sup}, ?MODULE, rides]}},
           #{id => dispatch, start => {scooters_dispatch, start_link, []}},
           #{id => billing, start => {scooters_billing, start_link, []}},
           #{id => listener, start => {scooters_listener, start_link, []}}]}};
init(rides) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 100, period => 10},
          [#{id => ride, restart => temporary, start => {scooters_ride, start_link, []}}]}}.
