-module(stock_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one},
          [#{id => report, start => {stock_report, start_link, []}},
           #{id => tills, start => {stock_till_sup, start_link, []}, type => supervisor}]}}.
