-module(harbour_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, [W(harbour_berths), W(harbour_piers), W(harbour_pilots)]}}.
