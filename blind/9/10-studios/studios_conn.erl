%% book STUDIO SLOT | cancel STUDIO SLOT | price STUDIO | free STUDIO SLOT
-module(studios_conn).
-export([init/1]).
init(S) -> serve(S).
serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            [C | Args] = string:lexemes(string:trim(Line), " "),
            ok = gen_tcp:send(S, [answer(C, [binary_to_integer(A) || A <- Args]), $\n]),
            serve(S);
        {error, _} -> gen_tcp:close(S)
    end.
answer(<<"book">>, [St, Sl]) -> io_lib:format("~0p", [studios_calendar:book(St, Sl)]);
answer(<<"cancel">>, [St, Sl]) -> io_lib:format("~0p", [studios_calendar:cancel(St, Sl)]);
answer(<<"price">>, [St]) -> integer_to_binary(studios_prices:price(St));
answer(<<"free">>, [St, Sl]) -> atom_to_binary(not studios_store:taken(St, Sl)).
