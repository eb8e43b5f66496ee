-module(parcels_store).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, put/2, where/1]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
put(Parcel, Box) -> gen_server:cast(?MODULE, {put, Parcel, Box}).
where(Parcel) ->
    case ets:lookup(parcels, Parcel) of [{_, Box, _}] -> Box; [] -> <<"unknown">> end.
init([]) ->
    ets:new(parcels, [named_table, {read_concurrency, true}]),
    [ets:insert(parcels, {<<"P", (integer_to_binary(I))/binary>>, <<"B7">>, 0}) || I <- lists:seq(1, 4000)],
    {ok, {}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast({put, P, B}, S) -> ets:insert(parcels, {P, B, erlang:system_time(second)}), {noreply, S}.
handle_info(_, S) -> {noreply, S}.
