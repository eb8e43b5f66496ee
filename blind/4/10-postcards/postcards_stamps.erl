-module(postcards_stamps).
-behaviour(gen_server).
-export([start_link/0, stamp/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
stamp(C, N) -> gen_server:call(?MODULE, {stamp, C, N}).
init([]) -> {ok, #{}}.
handle_call({stamp, C, N}, _, S) -> {reply, maps:get(C, S, 0), S#{C => N}}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
