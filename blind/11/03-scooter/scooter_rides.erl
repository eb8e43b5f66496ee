%% 2500 rides under way; a ride ends after some 40 seconds and another one begins.
-module(scooter_rides).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, ride/1]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

init([]) ->
    {ok, maps:from_list([begin {P, R} = begin_ride(rand:uniform(40000)), {R, P} end || _ <- lists:seq(1, 2500)])}.

begin_ride(Time) -> spawn_monitor(?MODULE, ride, [Time]).

ride(Time) ->
    erlang:send_after(Time, self(), arrived),
    ride_loop(0).

ride_loop(Meters) ->
    receive
        arrived -> Meters
    after 4000 + erlang:phash2(self(), 2000) -> ride_loop(Meters + 20)
    end.

handle_call(count, _, S) -> {reply, map_size(S), S}.
handle_cast(_, S) -> {noreply, S}.

handle_info({'DOWN', R, process, _, _}, S) ->
    {P, New} = begin_ride(20000 + rand:uniform(40000)),
    {noreply, (maps:remove(R, S))#{New => P}}.
