-module(dialer_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one},
          [#{id => dialer_mix, start => {dialer_mix, start_link, []}},
           #{id => dialer_billing, start => {dialer_billing, start_link, []}},
           #{id => dialer_call_sup, type => supervisor, start => {dialer_call_sup, start_link, []}}]}}.
