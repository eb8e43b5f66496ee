%% How many people went through which gate.
-module(turnstile_counts).
-behaviour(gen_server).
-export([start_link/0, add/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
add(Gate, N) -> ets:update_counter(?MODULE, Gate, N, {Gate, 0}).
init([]) ->
    ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    {ok, none}.
handle_call(_, _, S) -> {reply, ets:info(?MODULE, size), S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
