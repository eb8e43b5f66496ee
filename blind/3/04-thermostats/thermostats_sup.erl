-module(thermostats_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one}, [#{id => M, start => {M, start_link, []}} || M <- [thermostats_rooms, thermostats_hourly, thermostats_udp]]}}.
