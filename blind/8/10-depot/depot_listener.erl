%% accepts the connections; each gets a process of its own below depot_conn_sup
-module(depot_listener).
-export([start_link/0, init/0]).

start_link() -> proc_lib:start_link(?MODULE, init, []).

init() ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {reuseaddr, true}, {backlog, 1024}, {ip, {127, 0, 0, 1}}, {buffer, 65536}, {nodelay, true}, {sndbuf, 16384}]),
    {ok, P} = inet:port(L),
    register(?MODULE, self()),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    proc_lib:init_ack({ok, self()}),
    accept(L).

accept(L) ->
    case gen_tcp:accept(L) of
        {ok, S} ->
            {ok, Pid} = supervisor:start_child(depot_conn_sup, [S]),
            case gen_tcp:controlling_process(S, Pid) of ok -> Pid ! go; _ -> ok end;
        {error, Why} ->
            logger:warning("accept: ~p", [Why]),
            timer:sleep(50)
    end,
    accept(L).
