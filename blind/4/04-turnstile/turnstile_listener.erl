-module(turnstile_listener).
-export([start_link/0, init/1]).
start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
init(Parent) ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {reuseaddr, true}, {nodelay, true}, {ip, {127, 0, 0, 1}} | more()]),
    {ok, Port} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    proc_lib:init_ack(Parent, {ok, self()}),
    accept(L).
more() -> application:get_env(turnstile, listen_options, []).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    {ok, P} = supervisor:start_child(turnstile_gate_sup, [S]),
    ok = gen_tcp:controlling_process(S, P),
    P ! go,
    accept(L).
