-module(calls_routes).
-behaviour(gen_server).
-export([start_link/0, route/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
route(To) ->
    case ets:lookup(?MODULE, To rem 5000) of [{_, R}] -> R; [] -> default end.
init([]) ->
    ets:new(?MODULE, [named_table, {read_concurrency, true}]),
    [ets:insert(?MODULE, {N, {trunk, N rem 8}}) || N <- lists:seq(0, 4999)],
    {ok, none}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
