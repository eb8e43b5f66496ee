%% Takes the reports in: place;state per line.
-module(parking_gateway).
-export([start_link/0, init/0, conn/1]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 256}, {recbuf, 65536}]),
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
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            [N, St] = binary:split(string:trim(Line), <<";">>),
            [{_, Pid}] = ets:lookup(parking_index, binary_to_integer(N)),
            Pid ! {report, case St of <<"1">> -> taken; _ -> free end},
            conn(S);
        {error, _} -> ok
    end.
