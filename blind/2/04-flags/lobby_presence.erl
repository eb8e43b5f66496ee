-module(lobby_presence).
-behaviour(gen_server).
-export([start_link/0, here/2, find/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
here(Id, Pid) -> gen_server:cast(?MODULE, {here, Id, Pid}).
find(Id) -> [{_, P}] = ets:lookup(lobby_presence, Id), P.
init([]) -> {ok, ets:new(lobby_presence, [named_table, protected, {read_concurrency, true}])}.
handle_call(_, _, T) -> {reply, ok, T}.
handle_cast({here, Id, Pid}, T) -> monitor(process, Pid), ets:insert(T, {Id, Pid}), {noreply, T}.
handle_info({'DOWN', _, _, Pid, _}, T) -> ets:match_delete(T, {'_', Pid}), {noreply, T}.
