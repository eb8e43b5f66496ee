-module(rollup_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 20, period => 10},
          [#{id => rollup_events, start => {rollup_events, start_link, []}},
           #{id => rollup_hourly, start => {rollup_hourly, start_link, []}}]}}.
