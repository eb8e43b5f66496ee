-module(weather_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => one_for_one},
          [W(weather_values),
           #{id => weather_station_sup, type => supervisor, start => {weather_station, start_sup, []}},
           W(weather_roofs), W(weather_desk)]}}.
