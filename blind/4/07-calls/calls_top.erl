-module(calls_top).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => rest_for_one},
          [W(calls_routes), W(calls_bill),
           #{id => calls_sup, type => supervisor, start => {calls_sup, start_link, []}},
           W(calls_trunk)]}}.
