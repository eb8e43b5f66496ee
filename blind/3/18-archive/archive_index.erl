%% letters and their text; of most letters only the number stays after the nightly tidying
-module(archive_index).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, put/2, tidy/0, text/1]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
put(N, Text) -> gen_server:call(?MODULE, {put, N, Text}).
tidy() -> gen_server:call(?MODULE, tidy, infinity).
text(N) -> case ets:lookup(letters, N) of [{_, T}] -> T; [] -> none end.
init([]) -> ets:new(letters, [named_table, public, {read_concurrency, true}]), {ok, {}}.
handle_call({put, N, Text}, _, S) -> ets:insert(letters, {N, Text}), {reply, ok, S};
handle_call(tidy, _, S) ->
    %% open cases (one of nineteen) stay
    [ets:delete(letters, N) || {N, _} <- ets:select(letters, [{{'$1', '_'}, [], [{{'$1', x}}]}]), erlang:phash2(N, 19) =/= 0],
    garbage_collect(),
    {reply, ets:info(letters, size), S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
