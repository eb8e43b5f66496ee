-module(museum_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    Front = case os:getenv("DEPOT") of
                false -> [];
                _ -> [#{id => listener, start => {museum_listener, start_link, []}}]
            end,
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => collection, start => {museum_collection, start_link, []}} | Front]}}.
