-module(sensors_unit_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    Dir = os:getenv("UNITS"),
    {ok, {#{strategy => one_for_one, intensity => 10, period => 10},
          [#{id => {unit, N}, start => {sensors_unit, start_link, [N, filename:join(Dir, "unit" ++ integer_to_list(N))]}}
           || N <- lists:seq(1, 14)]}}.
