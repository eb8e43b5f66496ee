%% duty by kind of goods
-module(customs_tariff).
-behaviour(gen_server).
-export([start_link/0, duty/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
duty(Kind, Cents) -> [{_, P}] = ets:lookup(customs_tariff, Kind), Cents * P div 1000.
init([]) ->
    ets:new(customs_tariff, [named_table, protected, {read_concurrency, true}]),
    ets:insert(customs_tariff, [{K, (K * 37) rem 250} || K <- lists:seq(0, 96)]),
    {ok, none}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
