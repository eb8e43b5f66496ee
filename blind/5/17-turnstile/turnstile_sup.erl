-module(turnstile_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M, T) -> #{id => M, start => {M, start_link, []}, type => T} end,
    {ok, {#{strategy => one_for_one}, [W(turnstile_tickets, worker), W(turnstile_counter, worker), W(turnstile_gate_sup, supervisor)]}}.
