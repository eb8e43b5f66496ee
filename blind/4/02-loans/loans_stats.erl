-module(loans_stats).
-behaviour(gen_server).
-export([start_link/0, add/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
add(K) -> gen_server:cast(?MODULE, {add, K}).
init([]) -> {ok, #{}}.
handle_call(all, _, S) -> {reply, S, S}.
handle_cast({add, K}, S) -> {noreply, maps:update_with(K, fun(N) -> N + 1 end, 1, S)}.
handle_info(_, S) -> {noreply, S}.
