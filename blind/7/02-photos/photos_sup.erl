-module(photos_sup).
-behaviour(application).
-behaviour(supervisor).
-export([start/2, stop/1, init/1]).
start(_, _) -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
stop(_) -> ok.
init([]) ->
    W = fun(Id, M, As) -> #{id => Id, start => {M, start_link, As}} end,
    Vnodes = [W({vnode, N}, photos_vnode, [N]) || N <- lists:seq(0, photos_ring:size() - 1)],
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [W(stats, photos_stats, [])] ++ Vnodes ++ [W(exchange, photos_exchange, []), W(listener, photos_listener, [])]}}.
