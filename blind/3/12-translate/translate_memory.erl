-module(translate_memory).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, word/1]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
word(W) -> case ets:lookup(?MODULE, W) of [{_, T}] -> T; [] -> W end.
init([]) ->
    ets:new(?MODULE, [named_table, {read_concurrency, true}]),
    [ets:insert(?MODULE, {<<"w", (integer_to_binary(I))/binary>>, <<"v", (integer_to_binary(I))/binary>>}) || I <- lists:seq(1, 20000)],
    {ok, {}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
