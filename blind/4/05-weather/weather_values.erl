-module(weather_values).
-behaviour(gen_server).
-export([start_link/0, put/2, get/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
put(N, T) -> ets:insert(?MODULE, {N, T}).
get(N) -> case ets:lookup(?MODULE, 1 + N rem 3000) of [{_, T}] -> T; [] -> 0.0 end.
init([]) ->
    ets:new(?MODULE, [named_table, public, {write_concurrency, true}, {read_concurrency, true}]),
    {ok, none}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
