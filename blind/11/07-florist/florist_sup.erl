-module(florist_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => catalogue, start => {florist_catalogue, start_link, []}},
           #{id => listener, start => {florist_listener, start_link, []}}]}}.
