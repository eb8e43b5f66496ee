-module(library_listener).
-export([start_link/0, init/0]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, P} = inet:port(L),
    register(?MODULE, self()),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    proc_lib:init_ack({ok, self()}),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(fun() -> receive go -> library_desk:serve(S) end end),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(L).
