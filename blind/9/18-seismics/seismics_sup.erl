-module(seismics_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    ets:new(seismics_samples, [named_table, public, {write_concurrency, true}]),
    ets:new(seismics_pids, [named_table, public, {read_concurrency, true}]),
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [#{id => seismics_stations, start => {seismics_stations, start_link, []}, type => supervisor},
           #{id => seismics_analysis, start => {seismics_analysis, start_link, []}},
           #{id => seismics_receiver, start => {seismics_receiver, start_link, []}},
           #{id => seismics_api, start => {seismics_api, start_link, []}}]}}.
