-module(branches_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => M, start => {M, start_link, []}} || M <- [branches_catalogue, branches_sync, branches_discovery, branches_listener]]}}.
