%% Tariffs by prefix of the number, longest prefix first.
-module(gateway_tariff).
-behaviour(gen_server).
-export([start_link/0, lookup/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
lookup(Number) -> lookup(Number, min(byte_size(Number), 6)).
lookup(_, 0) -> {10, 30};
lookup(Number, N) ->
    case ets:lookup(?MODULE, binary:part(Number, 0, N)) of
        [{_, T}] -> T;
        [] -> lookup(Number, N - 1)
    end.
init([]) ->
    ?MODULE = ets:new(?MODULE, [named_table, protected, {read_concurrency, true}]),
    [ets:insert(?MODULE, {integer_to_binary(P), {P rem 7, 1 + P rem 90}}) || P <- lists:seq(100, 9999)],
    erlang:send_after(5000, self(), reload),
    {ok, 1}.
handle_call(_, _From, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(reload, N) ->
    [ets:insert(?MODULE, {integer_to_binary(P), {P rem 7, 1 + (P + N) rem 90}}) || P <- lists:seq(100, 1999)],
    erlang:send_after(5000, self(), reload),
    {noreply, N + 1}.
