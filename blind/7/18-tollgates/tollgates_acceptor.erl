-module(tollgates_acceptor).
-export([start_link/0, init/0, passage/1]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {nodelay, true}]),
    {ok, P} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    proc_lib:init_ack({ok, self()}),
    loop(L).
loop(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(?MODULE, passage, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    loop(L).
%% a gate opens a connection for each group of passages, as its modem has always done it
passage(S) ->
    case gen_tcp:recv(S, 0, 10000) of
        {ok, Line} ->
            [G, C | Plates] = binary:split(string:trim(Line), <<" ">>, [global]),
            P = tollgates_tariff:price(binary_to_integer(G), binary_to_integer(C)),
            [tollgates_bookings:book(G, Pl, P) || Pl <- Plates],
            gen_tcp:send(S, io_lib:format("~b~n", [P * length(Plates)])),
            gen_tcp:close(S);
        {error, _} -> gen_tcp:close(S)
    end.
