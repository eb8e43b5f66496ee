-module(addresses_countries).
-behaviour(gen_server).
-export([start_link/0, known/1, all/0, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
known(C) -> ets:member(addresses_countries, C).
all() -> [C || {C} <- ets:tab2list(addresses_countries)].
init([]) ->
    ets:new(addresses_countries, [named_table, protected, {read_concurrency, true}]),
    ets:insert(addresses_countries, [{C} || C <- [<<"DE">>, <<"AT">>, <<"CH">>, <<"NL">>, <<"BE">>, <<"FR">>, <<"DK">>, <<"PL">>]]),
    {ok, []}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
