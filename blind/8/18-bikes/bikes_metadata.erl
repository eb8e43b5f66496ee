%% Metadata of the bikes (where it stands, battery, lock): an ETS table for the readers, a dets file behind it.
%% A put is on disk before it is answered.
-module(bikes_metadata).
-behaviour(gen_server).
-export([start_link/0, put/2, get/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
put(K, V) -> gen_server:call(?MODULE, {put, K, V}, 60000).
get(K) -> case ets:lookup(bikes_metadata, K) of [{_, V}] -> V; [] -> undefined end.

init([]) ->
    File = os:getenv("DATA") ++ ".dets",
    {ok, D} = dets:open_file(bikes_dets, [{file, File}, {auto_save, 60000}]),
    ets:new(bikes_metadata, [named_table, protected, {read_concurrency, true}]),
    [begin V = {docked, I rem 300, 80, {0, I}}, ets:insert(bikes_metadata, {{bike, I}, V}), dets:insert(D, {{bike, I}, V}) end || I <- lists:seq(1, 6000)],
    ok = dets:sync(D),
    {ok, #{dets => D, puts => 0}}.

handle_call({put, K, V}, _, S = #{dets := D, puts := N}) ->
    Clock = case ets:lookup(bikes_metadata, K) of [{_, Old}] -> element(tuple_size(Old), Old); [] -> {0, 0} end,
    New = setelement(tuple_size(V), V, tick(Clock)),
    ok = dets:insert(D, {K, New}),
    ok = dets:sync(D),
    ets:insert(bikes_metadata, {K, New}),
    bikes_exchange:changed(K, New),
    {reply, ok, S#{puts := N + 1}}.

handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
tick({A, B}) -> {A + 1, B}.
