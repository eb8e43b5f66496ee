-module(bookings_desk).
-export([start_link/0, init/1, serve/1]).
start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
init(Parent) ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 256}, {nodelay, true}]),
    {ok, Port} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    proc_lib:init_ack(Parent, {ok, self()}),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    P = proc_lib:spawn(?MODULE, serve, [S]),
    ok = gen_tcp:controlling_process(S, P),
    P ! go,
    accept(L).
serve(S) -> receive go -> loop(S) end.
loop(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            [What, C, N] = string:lexemes(string:trim(Line), " "),
            {Hotel, Day} = {binary_to_integer(C) rem 10, binary_to_integer(N)},
            R = case What of
                <<"free">> -> bookings_hotel:ask(Hotel, free, Day);
                <<"book">> -> bookings_hotel:ask(Hotel, book, Day);
                <<"rate">> -> bookings_rates:rate(Day)
            end,
            ok = gen_tcp:send(S, [io_lib:format("~p", [R]), $\n]),
            loop(S);
        {error, _} -> ok
    end.
