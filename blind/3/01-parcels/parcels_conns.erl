%% supervises the connections of the lockers and limits their number
-module(parcels_conns).
-behaviour(supervisor).
-export([start_link/0, init/1, start_locker/1, room/0]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => simple_one_for_one},
          [#{id => locker, start => {parcels_locker, start_link, []}, restart => temporary}]}}.
start_locker(Socket) -> supervisor:start_child(?MODULE, [Socket]).
room() ->
    {ok, Max} = application:get_env(parcels, max_connections),
    proplists:get_value(active, supervisor:count_children(?MODULE)) < Max.
