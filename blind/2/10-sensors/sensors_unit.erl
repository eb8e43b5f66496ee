%% Reads the values of one measuring station from its file; the driver of the station writes into it.
-module(sensors_unit).
-behaviour(gen_server).
-export([start_link/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(N, Path) -> gen_server:start_link(?MODULE, {N, Path}, []).
init({N, Path}) ->
    erlang:send_after(3000 + N * 20, self(), open),
    {ok, #{n => N, path => Path}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(open, #{path := P} = S) ->
    {ok, F} = file:open(P, [read, raw, binary]),
    self() ! read,
    {noreply, S#{file => F}};
handle_info(read, #{file := F, n := N} = S) ->
    case file:read(F, 64) of
        {ok, <<V:64/float, _/binary>>} -> sensors_values:put(N, V);
        _ -> ok
    end,
    {ok, _} = file:position(F, 0),
    erlang:send_after(200, self(), read),
    {noreply, S}.
