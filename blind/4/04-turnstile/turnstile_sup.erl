-module(turnstile_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => rest_for_one},
          [W(turnstile_counts), W(turnstile_crowd),
           #{id => turnstile_gate_sup, type => supervisor, start => {turnstile_gate, start_sup, []}},
           W(turnstile_listener)]}}.
