-module(quotes_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    Desks = [#{id => {desk, I}, start => {quotes_desk, start_link, [I]}} || I <- lists:seq(1, 8)],
    Customers = [#{id => {customer, I}, start => {quotes_customers, start_link, [I]}} || I <- lists:seq(1, 40)],
    {ok, {#{strategy => one_for_one}, [#{id => rules, start => {quotes_rules, start_link, []}}] ++ Desks ++ Customers}}.
