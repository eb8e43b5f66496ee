%% starts the stations
-module(weather_roofs).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    [{ok, _} = supervisor:start_child(weather_station_sup, [N]) || N <- lists:seq(1, 3000)],
    {ok, none}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
