-module(ledger_api).
-export([start_link/0, init/1, serve/1]).
start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
init(Parent) ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {active, false}, {packet, line}, {reuseaddr, true}, {ip, {127,0,0,1}}, {backlog, 200}]),
    {ok, Port} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    proc_lib:init_ack(Parent, {ok, self()}),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = proc_lib:spawn(?MODULE, serve, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(L).
serve(S) -> receive go -> loop(S) end.
loop(S) ->
    case gen_tcp:recv(S, 0, 60000) of
        {ok, Line} ->
            ok = gen_tcp:send(S, [answer(binary:split(Line, [<<" ">>, <<"\n">>], [global])), $\n]),
            loop(S);
        {error, _} -> gen_tcp:close(S)
    end.
answer([<<"BAL">>, A, C | _]) ->
    io_lib:format("~.2f", [ledger_book:balance(binary_to_integer(A)) * ledger_rates:rate(binary_to_existing_atom(C))]);
answer([<<"POST">>, A, M | _]) ->
    {ok, New} = ledger_posting:post(binary_to_integer(A), binary_to_integer(M)),
    integer_to_list(New).
