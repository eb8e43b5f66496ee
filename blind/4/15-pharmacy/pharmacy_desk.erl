-module(pharmacy_desk).
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
            [What, N, C] = string:lexemes(string:trim(Line), " "),
            R = case What of
                <<"label">> -> pharmacy_label:make(binary_to_integer(N), binary_to_integer(C));
                <<"stock">> -> pharmacy_stock:stock(binary_to_integer(N));
                <<"price">> -> pharmacy_stock:price(binary_to_integer(N))
            end,
            pharmacy_log:note(What),
            ok = gen_tcp:send(S, [io_lib:format("~p", [R]), $\n]),
            loop(S);
        {error, _} -> ok
    end.
