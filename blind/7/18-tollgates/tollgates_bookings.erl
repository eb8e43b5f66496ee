%% The passages by plate of the last minutes, and the sums of the gates.
-module(tollgates_bookings).
-export([start_link/0, init/0, book/3, count/0]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    register(?MODULE, self()),
    ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    ets:insert(?MODULE, {count, 0}),
    proc_lib:init_ack({ok, self()}),
    loop(#{}).
loop(Sums) ->
    receive
        {booked, Gate, P} -> loop(maps:update_with(Gate, fun(S) -> S + P end, P, Sums));
        {sums, From} -> From ! {sums, Sums}, loop(Sums)
    end.
book(Gate, Plate, P) ->
    ets:insert(?MODULE, {{plate, erlang:phash2(Plate, 20000)}, Gate, erlang:system_time(second)}),
    ?MODULE ! {booked, Gate, P},
    ets:update_counter(?MODULE, count, 1).
count() -> ets:lookup_element(?MODULE, count, 2).
