%% One ride: position reports, a pause now and then, the end.
-module(scooters_ride).
-behaviour(gen_statem).
-export([start_link/2, init/1, callback_mode/0, riding/3]).

start_link(Scooter, Seconds) -> gen_statem:start_link(?MODULE, {Scooter, Seconds}, [{hibernate_after, 3000}]).

callback_mode() -> state_functions.

init({Scooter, Seconds}) ->
    {ok, riding, #{scooter => Scooter, at => {rand:uniform(10000), rand:uniform(10000)}, metres => 0},
     [{{timeout, finish}, round(Seconds * 1000), finish}, {{timeout, position}, 20000 + rand:uniform(30000), position}]}.

riding({timeout, position}, _, #{at := {X, Y}, metres := M} = D) ->
    {keep_state, D#{at := {X + rand:uniform(100) - 50, Y + rand:uniform(100) - 50}, metres := M + rand:uniform(120)},
     [{{timeout, position}, 30000 + rand:uniform(30000), position}]};
riding({timeout, finish}, _, #{scooter := S, metres := M}) ->
    scooters_billing:ride(S, M),
    stop;
riding(info, _, _) -> keep_state_and_data.
