-module(exchange_accounts).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() ->
    ets:new(exchange_account_pids, [named_table, public, {read_concurrency, true}]),
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => simple_one_for_one}, [#{id => account, start => {exchange_account, start_link, []}, restart => transient}]}}.
