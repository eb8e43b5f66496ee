-module(parking_sup).
-behaviour(application).
-behaviour(supervisor).
-export([start/2, stop/1, init/1]).
start(_, _) ->
    {ok, P} = supervisor:start_link({local, ?MODULE}, ?MODULE, []),
    [{ok, _} = supervisor:start_child(parking_places_sup, [N]) || N <- lists:seq(1, 30000)],
    {ok, P}.
stop(_) -> ok.
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => one_for_one},
          [W(parking_lots), #{id => places, type => supervisor, start => {parking_place, start_sup, []}}, W(parking_watchdog), W(parking_gateway)]}}.
