-module(analyzers_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10},
          [#{id => analyzers_limits, start => {analyzers_limits, start_link, []}},
           #{id => analyzers_results, start => {analyzers_results, start_link, []}},
           #{id => analyzers_session_sup, start => {analyzers_session_sup, start_link, []}, type => supervisor},
           #{id => analyzers_listener, start => {analyzers_listener, start_link, []}}]}}.
