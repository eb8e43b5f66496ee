%% A scanner at a belt or in a van: takes a parcel in, later it is out, then delivered.
-module(parcels_scanner).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(I) -> gen_server:start_link(?MODULE, I, []).
init(I) ->
    erlang:send_after(rand:uniform(1000), self(), work),
    {ok, #{i => I, mine => queue:new()}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(work, #{mine := Q0} = S) ->
    T = erlang:monotonic_time(microsecond),
    Q1 = queue:in({parcels_db:next(rand:uniform(99999)), out}, Q0),
    Q3 = case queue:len(Q1) > 10 of
             true ->
                 {{value, {Id, Status}}, Q2} = queue:out(Q1),
                 parcels_db:scan(Id, Status),
                 parcels_db:scan(Id, delivered),
                 Q2;
             false -> Q1
         end,
    parcels_board:scanned(erlang:monotonic_time(microsecond) - T),
    erlang:send_after(80 + rand:uniform(60), self(), work),
    {noreply, S#{mine := Q3}}.
