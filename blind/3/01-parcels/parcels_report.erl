-module(parcels_report).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, seen/1]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
seen(Id) -> gen_server:cast(?MODULE, {seen, Id}).
init([]) -> erlang:send_after(1000, self(), minute), {ok, #{}}.
handle_call(count, _, S) -> {reply, map_size(S), S}.
handle_cast({seen, Id}, S) -> {noreply, S#{Id => erlang:system_time(second)}}.
handle_info(minute, S) ->
    erlang:send_after(1000, self(), minute),
    _ = lists:sort([{T, I} || I := T <- S]),
    {noreply, S}.
