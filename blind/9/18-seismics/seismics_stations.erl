-module(seismics_stations).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() ->
    {ok, Sup} = supervisor:start_link({local, ?MODULE}, ?MODULE, []),
    [{ok, _} = supervisor:start_child(Sup, [I]) || I <- lists:seq(1, 300)],
    {ok, Sup}.
init([]) -> {ok, {#{strategy => simple_one_for_one}, [#{id => station, start => {seismics_station, start_link, []}}]}}.
