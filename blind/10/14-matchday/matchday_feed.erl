%% Events of the matches, sent to everybody who watches.
-module(matchday_feed).
-export([start_link/0, watch/1, init/1]).

start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
watch(Pid) -> matchday_feed ! {watch, Pid}, ok.

init(Parent) ->
    register(matchday_feed, self()),
    proc_lib:init_ack(Parent, {ok, self()}),
    erlang:send_after(500, self(), event),
    loop(#{}, 0).

loop(Viewers, N) ->
    receive
        {watch, Pid} -> loop(Viewers#{Pid => monitor(process, Pid)}, N);
        {'DOWN', _, process, Pid, _} -> loop(maps:remove(Pid, Viewers), N);
        event ->
            erlang:send_after(200, self(), event),
            E = event(N),
            matchday_table:event(maps:get(minute, E)),
            maps:foreach(fun(Pid, _) -> Pid ! {event, E} end, Viewers),
            loop(Viewers, N + 1)
    end.

event(N) ->
    #{at => erlang:system_time(millisecond), number => N, minute => N rem 90, ball => [rand:uniform(105), rand:uniform(68)],
      teams => [#{name => T, goals => rand:uniform(3), players =>
                  [#{number => P, name => <<"Player ", (integer_to_binary(P))/binary, " of ", T/binary>>, x => rand:uniform(1050) / 10, y => rand:uniform(680) / 10,
                     speed => rand:uniform(90) / 10, distance => rand:uniform(11000), passes => rand:uniform(60), shots => rand:uniform(5),
                     cards => [], heart => 120 + rand:uniform(60), heat => [rand:uniform(9) || _ <- lists:seq(1, 12)]} || P <- lists:seq(1, 16)]}
                || T <- [<<"Rovers">>, <<"United">>]]}.
