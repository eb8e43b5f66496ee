-module(tours_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => one_for_one},
          [W(tours_places), W(tours_mail), W(tours_payment), #{id => bookings, start => {tours_booking_sup, start_link, []}, type => supervisor}, W(tours_web)]}}.
