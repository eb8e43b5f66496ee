-module(photoid_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [#{id => photoid_index, start => {photoid_index, start_link, []}},
           #{id => worker_1, start => {photoid_worker, start_link, [photoid_worker_1]}},
           #{id => worker_2, start => {photoid_worker, start_link, [photoid_worker_2]}},
           #{id => photoid_listener, start => {photoid_listener, start_link, []}}]}}.
