-module(lifts_probe_sup).
-behaviour(supervisor).
-export([init/1]).
init([]) -> {ok, {#{strategy => simple_one_for_one}, [#{id => probe, start => {lifts_probe, start_link, []}}]}}.
