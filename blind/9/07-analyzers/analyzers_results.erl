%% The last 5000 results.
-module(analyzers_results).
-behaviour(gen_server).
-export([start_link/0, take/4, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
take(Device, Test, V, Judged) -> gen_server:call(?MODULE, {take, {Device, Test, V, Judged}}).
init([]) ->
    ets:new(analyzers_results, [named_table, protected, ordered_set]),
    {ok, 0}.
handle_call({take, R}, _, N) ->
    ets:insert(analyzers_results, {N, R}),
    ets:delete(analyzers_results, N - 5000),
    {reply, ok, N + 1}.
handle_cast(_, N) -> {noreply, N}.
