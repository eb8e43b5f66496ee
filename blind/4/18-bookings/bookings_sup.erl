-module(bookings_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    H = fun(N) -> #{id => {hotel, N}, start => {bookings_hotel, start_link, [N]}} end,
    {ok, {#{strategy => one_for_one}, [W(bookings_rates)] ++ [H(N) || N <- lists:seq(0, 9)] ++ [W(bookings_desk)]}}.
