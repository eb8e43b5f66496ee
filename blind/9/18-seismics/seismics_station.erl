%% One station: keeps its last 600 samples; complains when it has not been heard for ten seconds.
-module(seismics_station).
-behaviour(gen_statem).
-export([start_link/1, sample/3, init/1, callback_mode/0, heard/3, silent/3]).
start_link(I) -> gen_statem:start_link(?MODULE, I, []).
sample(I, N, V) -> gen_statem:cast(ets:lookup_element(seismics_pids, I, 2), {sample, N, V}).
callback_mode() -> state_functions.
init(I) ->
    ets:insert(seismics_pids, {I, self()}),
    {ok, silent, #{id => I, from => 0, noise => 0.0}}.
heard(cast, {sample, N, V}, D) -> {keep_state, keep(N, V, D), [{state_timeout, 10000, quiet}]};
heard(state_timeout, quiet, D) -> {next_state, silent, D}.
silent(cast, {sample, N, V}, D) -> {next_state, heard, keep(N, V, D), [{state_timeout, 10000, quiet}]}.
keep(N, V, #{id := I, noise := Noise} = D) ->
    ets:insert(seismics_samples, {{I, N rem 600}, N, V}),
    D#{noise := Noise * 0.99 + abs(V) * 0.01}.
