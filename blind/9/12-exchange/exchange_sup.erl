-module(exchange_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10},
          [#{id => exchange_trades, start => {exchange_trades, start_link, []}},
           #{id => exchange_accounts, start => {exchange_accounts, start_link, []}, type => supervisor},
           #{id => exchange_book, start => {exchange_book, start_link, []}}]}}.
