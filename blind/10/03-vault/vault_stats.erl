-module(vault_stats).
-behaviour(gen_server).
-export([start_link/0, count/1, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
count(What) -> ets:update_counter(?MODULE, What, 1, {What, 0}).

init([]) -> {ok, ets:new(?MODULE, [named_table, public, {write_concurrency, true}])}.
handle_call(all, _, T) -> {reply, ets:tab2list(T), T}.
handle_cast(_, T) -> {noreply, T}.
