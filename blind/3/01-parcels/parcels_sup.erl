-module(parcels_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10},
          [W(parcels_store), W(parcels_report), (W(parcels_conns))#{type => supervisor}, W(parcels_listener)]}}.
