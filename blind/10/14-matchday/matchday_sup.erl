-module(matchday_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => feed, start => {matchday_feed, start_link, []}},
           #{id => table, start => {matchday_table, start_link, []}},
           #{id => listener, start => {matchday_listener, start_link, []}}]}}.
