-module(lifts_listener).
-export([start_link/0, init/0, conn/1]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 128}, {recbuf, 65536}]),
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
            [Lift, Kind, V] = binary:split(string:trim(Line), <<";">>, [global]),
            lifts_probe:update({binary_to_integer(Lift), binary_to_existing_atom(Kind)}, binary_to_float(V)),
            conn(S);
        {error, _} -> ok
    end.
