%% one booking: offered -> paying -> paid
-module(tours_booking).
-behaviour(gen_statem).
-export([start_link/2, accept/2, payment/2]).
-export([init/1, callback_mode/0, offered/3, paying/3, paid/3]).
start_link(Tour, Persons) -> gen_statem:start_link(?MODULE, {Tour, Persons}, []).
accept(Booking, Customer) -> gen_statem:call(Booking, {accept, Customer}, 2000).
payment(Booking, Result) -> gen_statem:cast(Booking, {payment, Result}).
callback_mode() -> state_functions.
init({Tour, Persons}) ->
    Places = tours_places:take(Tour, Persons),
    {ok, offered, #{tour => Tour, persons => Persons, places => Places, price => 1900 * Persons, programme => tours_places:programme(Tour)}, [{state_timeout, 5000, expired}]}.
offered({call, From}, {accept, Customer}, D) ->
    Url = tours_payment:open(self(), maps:get(price, D)),
    {next_state, paying, D#{customer => Customer}, [{reply, From, {pay_at, Url}}]};
offered(state_timeout, expired, D) ->
    tours_places:give_back(D),
    {stop, normal}.
paying(cast, {payment, ok}, D) ->
    tours_mail:ticket(D),
    {next_state, paid, D, [{state_timeout, 2000, done}]};
paying(cast, {payment, refused}, D) ->
    tours_places:give_back(D),
    {stop, normal}.
paid(state_timeout, done, _) -> {stop, normal}.
