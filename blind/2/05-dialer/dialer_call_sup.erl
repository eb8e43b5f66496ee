-module(dialer_call_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 50, period => 5},
          [#{id => call, start => {dialer_call, start_link, []}, restart => temporary}]}}.
