-module(parcel_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => events, start => {parcel_events, start_link, []}},
           #{id => spool, start => {parcel_spool, start_link, []}, restart => transient},
           #{id => listener, start => {parcel_listener, start_link, []}}]}}.
