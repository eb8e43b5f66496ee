%% stands for the web sessions
-module(quotes_customers).
-export([start_link/1, loop/2]).
start_link(I) -> {ok, proc_lib:spawn_link(?MODULE, loop, [I, 0])}.
loop(I, N) ->
    timer:sleep(60 + rand:uniform(80)),
    P = #{age => 18 + rand:uniform(80), region => rand:uniform(99), claims => [{2016 + rand:uniform(10), rand:uniform(4000)} || _ <- lists:seq(1, rand:uniform(5))]},
    [_, _, _] = quotes_desk:quote(1 + N rem 8, P),
    loop(I, N + 1).
