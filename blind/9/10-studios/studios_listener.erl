-module(studios_listener).
-export([start_link/0, run/0]).
start_link() -> {ok, proc_lib:spawn_link(?MODULE, run, [])}.
run() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 128}]),
    {ok, P} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = proc_lib:spawn(studios_conn, init, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    accept(L).
