-module(greenhouse_sup).
-behaviour(application).
-behaviour(supervisor).
-export([start/2, stop/1, init/1]).
start(_, _) -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
stop(_) -> ok.
init([]) ->
    W = fun(Id, M, As) -> #{id => Id, start => {M, start_link, As}} end,
    {ok, {#{strategy => one_for_one},
          [W(bus, greenhouse_bus, [])] ++ [W({climate, H}, greenhouse_climate, [H]) || H <- lists:seq(1, 20)]
          ++ [W(historian, greenhouse_historian, []), W(listener, greenhouse_listener, [])]}}.
