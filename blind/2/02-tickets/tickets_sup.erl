-module(tickets_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [#{id => tickets_stats, start => {tickets_stats, start_link, []}},
           #{id => tickets_price, start => {tickets_price, start_link, []}},
           #{id => tickets_listener, start => {tickets_listener, start_link, []}}]}}.
