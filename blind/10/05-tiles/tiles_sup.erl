-module(tiles_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, top).

init(top) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => store, start => {tiles_store, start_link, []}},
           #{id => watchers, type => supervisor, start => {supervisor, start_link, [{local, tiles_watch_sup}, ?MODULE, watchers]}},
           #{id => areas, start => {tiles_areas, start_link, []}},
           #{id => listener, start => {tiles_listener, start_link, []}}]}};
init(watchers) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 100, period => 10},
          [#{id => watch, restart => temporary, start => {tiles_watch, start_link, []}}]}}.
