-module(scales_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    ets:new(scales_last, [named_table, public, {write_concurrency, true}]),
    W = fun(M, T) -> #{id => M, start => {M, start_link, []}, type => T} end,
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [W(scales_prices, worker), W(scales_device_sup, supervisor), W(scales_listener, worker)]}}.
