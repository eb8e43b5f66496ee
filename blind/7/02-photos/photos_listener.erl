-module(photos_listener).
-export([start_link/0, init/0, conn/1]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 128}, {nodelay, true}]),
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
        {ok, <<"GET ", K/binary>>} ->
            R = case photos_ring:get(string:trim(K)) of {ok, D, V} -> [integer_to_list(V), $\s, integer_to_list(byte_size(D))]; notfound -> "none" end,
            photos_stats:count(gets),
            ok = gen_tcp:send(S, [R, $\n]), conn(S);
        {ok, <<"PUT ", K/binary>>} ->
            {ok, V} = photos_ring:put(string:trim(K), rand:bytes(900)),
            photos_stats:count(puts),
            ok = gen_tcp:send(S, [integer_to_list(V), $\n]), conn(S);
        {error, _} -> ok
    end.
