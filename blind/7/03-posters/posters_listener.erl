-module(posters_listener).
-export([start_link/0, init/0, conn/1]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 256}, {send_timeout, 10000}, {send_timeout_close, true}]),
    {ok, P} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    proc_lib:init_ack({ok, self()}),
    loop(L).
loop(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(?MODULE, conn, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    loop(L).
conn(S) ->
    case gen_tcp:recv(S, 0, 60000) of
        {ok, Line} ->
            {_, Bin} = posters_cache:fetch(binary_to_integer(string:trim(Line))),
            case gen_tcp:send(S, [<<(byte_size(Bin)):32>>, Bin]) of ok -> conn(S); _ -> gen_tcp:close(S) end;
        {error, _} -> gen_tcp:close(S)
    end.
