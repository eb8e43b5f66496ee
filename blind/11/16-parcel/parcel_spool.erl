%% After a start: the events that came while the service was down.
-module(parcel_spool).
-export([start_link/0, replay/0]).

start_link() -> {ok, proc_lib:spawn_link(?MODULE, replay, [])}.

replay() ->
    [parcel_events:save(<<"z", (integer_to_binary(I rem 60000))/binary>>, <<"night">>) || I <- lists:seq(1, 200000)],
    ok.
