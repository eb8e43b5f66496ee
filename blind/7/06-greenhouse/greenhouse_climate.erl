%% Climate of one house: windows and heating follow the values.
-module(greenhouse_climate).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(H) -> gen_server:start_link(?MODULE, H, []).
init(H) -> ok = greenhouse_bus:subscribe(integer_to_binary(H)), {ok, #{house => H, avg => #{}, window => closed}}.
handle_call(get, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info({value, [_, Kind], #{value := V}}, #{avg := A} = S) ->
    M = 0.9 * maps:get(Kind, A, V) + 0.1 * V,
    {noreply, S#{avg := A#{Kind => M}, window := case M > 26 of true -> open; false -> closed end}}.
