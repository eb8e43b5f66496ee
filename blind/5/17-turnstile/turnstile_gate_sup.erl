-module(turnstile_gate_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one}, [#{id => N, start => {turnstile_gate, start_link, [N]}} || N <- lists:seq(1, 64)]}}.
