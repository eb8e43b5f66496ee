-module(sensors_values).
-behaviour(gen_server).
-export([start_link/0, put/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
put(N, V) -> gen_server:cast(?MODULE, {put, N, V}).
init([]) ->
    ets:new(?MODULE, [named_table, protected]),
    erlang:send_after(100, self(), radio),
    {ok, 0}.
handle_call(count, _, N) -> {reply, N, N}.
handle_cast({put, U, V}, N) -> ets:insert(?MODULE, {U, V, erlang:system_time(millisecond)}), {noreply, N + 1}.
%% the stations with radio need no file
handle_info(radio, N) ->
    [ets:insert(?MODULE, {{radio, I}, math:sin(N + I), erlang:system_time(millisecond)}) || I <- lists:seq(1, 400)],
    erlang:send_after(100, self(), radio),
    {noreply, N + 400}.
