-module(tours_booking_sup).
-behaviour(supervisor).
-export([start_link/0, init/1, start_booking/2]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
start_booking(Tour, Persons) -> supervisor:start_child(?MODULE, [Tour, Persons]).
init([]) ->
    {ok, {#{strategy => simple_one_for_one},
          [#{id => booking, start => {tours_booking, start_link, []}, restart => temporary}]}}.
