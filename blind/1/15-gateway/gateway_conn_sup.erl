-module(gateway_conn_sup).
-behaviour(supervisor).
-export([start_link/0, start_conn/1, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
start_conn(S) -> supervisor:start_child(?MODULE, [S]).
init([]) ->
    {ok, {#{strategy => simple_one_for_one},
          [#{id => conn, start => {gateway_conn, start_link, []}, restart => temporary}]}}.
