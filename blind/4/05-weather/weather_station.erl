%% A station on a roof. Some of the old ones send rubbish now and then; then its process ends and is started again.
-module(weather_station).
-behaviour(supervisor).
-export([start_sup/0, init/1, start_link/1, loop/2, begin_station/1]).
start_sup() -> supervisor:start_link({local, weather_station_sup}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 30, period => 10},
          [#{id => station, start => {?MODULE, start_link, []}}]}}.
start_link(N) -> {ok, proc_lib:spawn_link(?MODULE, begin_station, [N])}.
begin_station(N) ->
    erlang:send_after(rand:uniform(1000), self(), measure),
    loop(N, 10.0).
loop(N, T) ->
    receive
        measure ->
            erlang:send_after(1000, self(), measure),
            Raw = case rand:uniform(12000) of 1 -> <<"??">>; _ -> float_to_binary(T + rand:normal() / 10) end,
            T1 = binary_to_float(Raw),
            weather_values:put(N, T1),
            loop(N, T1)
    end.
