-module(postroom_sup).
-behaviour(application).
-behaviour(supervisor).
-export([start/2, stop/1, init/1]).
start(_, _) -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
stop(_) -> ok.
init([]) ->
    W = fun(Id, M, As) -> #{id => Id, start => {M, start_link, As}} end,
    {ok, {#{strategy => one_for_one},
          [W(archive, postroom_archive, [])] ++ [W({controller, N}, postroom_controller, [N]) || N <- lists:seq(1, 130)]
          ++ [W(pulse, postroom_pulse, []), W(listener, postroom_listener, [])]}}.
