-module(calls_call).
-behaviour(gen_statem).
-export([start_link/2, init/1, callback_mode/0, ringing/3, talking/3]).
start_link(Id, Invite) -> gen_statem:start_link(?MODULE, {Id, Invite}, []).
callback_mode() -> state_functions.
init({Id, #{to := To}}) ->
    {ok, ringing, #{id => Id, route => calls_routes:route(To), at => erlang:monotonic_time(millisecond)},
     [{state_timeout, 200 + rand:uniform(600), answered}]}.
ringing(state_timeout, answered, D) -> {next_state, talking, D, [{state_timeout, 500 + rand:uniform(3000), bye}]}.
talking(state_timeout, bye, #{id := Id, at := At, route := R}) ->
    calls_bill:add(Id, R, erlang:monotonic_time(millisecond) - At),
    {stop, normal}.
