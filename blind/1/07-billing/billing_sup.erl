-module(billing_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    Worker = fun(M) -> #{id => M, start => {M, start_link, []}, shutdown => 2000} end,
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [Worker(billing_stats), Worker(billing_report)]}}.
