-module(gateway_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10},
          [#{id => stats, start => {gateway_stats, start_link, []}},
           #{id => tariff, start => {gateway_tariff, start_link, []}},
           #{id => conn_sup, start => {gateway_conn_sup, start_link, []}, type => supervisor},
           #{id => listener, start => {gateway_listener, start_link, []}}]}}.
