%% Looks every two seconds whether the limits have changed.
-module(sensors_config).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> {ok, #{looked => 0}, 2000}.
handle_call(looked, _, #{looked := L} = S) -> {reply, L, S, 2000}.
handle_cast(_, S) -> {noreply, S, 2000}.
handle_info(timeout, #{looked := L} = S) ->
    {ok, _} = file:read_file(filename:join(os:getenv("SPOOL"), "limits.txt"), [raw]),
    {noreply, S#{looked => L + 1}, 2000}.
