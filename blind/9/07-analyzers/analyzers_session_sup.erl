-module(analyzers_session_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => simple_one_for_one},
          [#{id => session, start => {analyzers_session, start_link, []}, restart => temporary}]}}.
