-module(photos_stats).
-behaviour(gen_server).
-export([start_link/0, count/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
count(What) -> ets:update_counter(?MODULE, What, 1, {What, 0}).
init([]) -> ets:new(?MODULE, [named_table, public, {write_concurrency, true}]), {ok, []}.
handle_call(all, _, S) -> {reply, ets:tab2list(?MODULE), S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
