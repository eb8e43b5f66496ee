-module(sensors_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => one_for_one},
          [W(sensors_values), W(sensors_config), W(sensors_export),
           #{id => sensors_unit_sup, type => supervisor, start => {sensors_unit_sup, start_link, []}}]}}.
