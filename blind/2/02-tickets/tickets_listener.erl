-module(tickets_listener).
-export([start_link/0, init/0]).
start_link() -> {ok, proc_lib:spawn_link(?MODULE, init, [])}.
init() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, 4}, {active, false}, {reuseaddr, true}, {nodelay, true},
                                 {ip, {127,0,0,1}}, {backlog, 128}]),
    {ok, Port} = inet:port(L),
    case os:getenv("PORT_FILE") of false -> ok; F -> ok = file:write_file(F, integer_to_list(Port)) end,
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = tickets_conn:start(),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! {socket, S},
    accept(L).
