-module(meters_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    meters_registry = ets:new(meters_registry, [named_table, public, {read_concurrency, true}]),
    {ok, {#{strategy => one_for_one},
          [#{id => batcher, start => {meters_batcher, start_link, []}},
           #{id => session_sup, start => {meters_session_sup, start_link, []}, type => supervisor}]}}.
