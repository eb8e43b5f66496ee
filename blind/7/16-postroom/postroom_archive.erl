-module(postroom_archive).
-behaviour(gen_server).
-export([start_link/0, file/2, size/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
file(Id, Info) -> ets:insert(?MODULE, {Id, Info}), ok.
size() -> ets:info(?MODULE, size).
init([]) -> ets:new(?MODULE, [named_table, public, {write_concurrency, true}]), {ok, []}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
