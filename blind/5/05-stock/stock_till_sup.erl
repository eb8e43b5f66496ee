-module(stock_till_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 10, period => 10},
          [#{id => N, start => {stock_till, start_link, [N]}} || N <- lists:seq(1, 40)]}}.
