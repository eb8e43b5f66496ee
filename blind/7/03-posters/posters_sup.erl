-module(posters_sup).
-behaviour(application).
-behaviour(supervisor).
-export([start/2, stop/1, init/1]).
start(_, _) -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
stop(_) -> ok.
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => rest_for_one}, [W(posters_cache), W(posters_listener)]}}.
