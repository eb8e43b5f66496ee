%% All vehicles and their tares in the state of one process (a map, some 200 MB, constant), asked a few times a second.
-module(weighbridge_ledger).
-behaviour(gen_server).
-export([start_link/0, tare/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], [{spawn_opt, [{fullsweep_after, 20}]}]).
tare(N) -> gen_server:call(?MODULE, {tare, N}).
init([]) -> {ok, maps:from_list([{I, {vehicle, I, I rem 40000, [{axle, A, I * A} || A <- lists:seq(1, 4)], I rem 7}} || I <- lists:seq(1, 450000)]), hibernate}.
handle_call({tare, N}, _, M) -> {vehicle, _, T, _, _} = maps:get(N, M), {reply, T, M}.
handle_cast(_, M) -> {noreply, M}.
handle_info(_, M) -> {noreply, M}.
