%% People who ask where their parcel is.
-module(parcels_track).
-export([start_link/1, loop/0]).
start_link(_) -> {ok, proc_lib:spawn_link(?MODULE, loop, [])}.
loop() ->
    timer:sleep(10 + rand:uniform(20)),
    _ = parcels_db:find(rand:uniform(60000)),
    loop().
