-module(depot_sup).
-behaviour(supervisor).
-export([start_link/0, start_conn_sup/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, top).
start_conn_sup() -> supervisor:start_link({local, depot_conn_sup}, ?MODULE, conns).

init(conns) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 100, period => 1}, [#{id => conn, start => {depot_conn, start_link, []}, restart => temporary}]}};
init(top) ->
    {ok, {#{strategy => one_for_one, intensity => 10, period => 10},
          [#{id => M, start => {M, start_link, []}} || M <- [depot_drawings, depot_clock]] ++
          [#{id => conns, start => {?MODULE, start_conn_sup, []}, type => supervisor},
           #{id => listener, start => {depot_listener, start_link, []}}]}}.
