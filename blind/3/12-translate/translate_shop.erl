-module(translate_shop).
-export([start_link/1, loop/2]).
start_link(I) -> {ok, proc_lib:spawn_link(?MODULE, loop, [I, 0])}.
loop(I, N) ->
    timer:sleep(15 + rand:uniform(20)),
    {ok, _} = translate_worker:translate(1 + N rem 6, text()),
    loop(I, N + 1).
text() ->
    Words = [<<"w", (integer_to_binary(rand:uniform(20000)))/binary, " ">> || _ <- lists:seq(1, 120)],
    %% every seventh text names its page
    Link = case rand:uniform(7) of 1 -> <<"https://shop.example/products/", (integer_to_binary(rand:uniform(1000000)))/binary>>; _ -> <<>> end,
    iolist_to_binary([Words, Link]).
