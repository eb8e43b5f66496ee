-module(thermostats_rooms).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, reading/3]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
reading(Id, T, W) -> ets:insert(thermostats_rooms, {Id, T, W, erlang:system_time(second)}).
init([]) ->
    ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    erlang:send_after(2000, self(), check),
    {ok, #{stale => 0}}.
handle_call(stale, _, #{stale := N} = S) -> {reply, N, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(check, S) ->
    erlang:send_after(2000, self(), check),
    Old = erlang:system_time(second) - 5,
    {noreply, S#{stale := ets:select_count(?MODULE, [{{'_', '_', '_', '$1'}, [{'<', '$1', Old}], [true]}])}}.
