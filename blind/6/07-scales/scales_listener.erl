-module(scales_listener).
-export([start_link/0, init/0]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    {ok, L} = ssl:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 256},
                             {certfile, os:getenv("CERT")}, {keyfile, os:getenv("KEY")}]),
    {ok, {_, P}} = ssl:sockname(L),
    register(?MODULE, self()),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    proc_lib:init_ack({ok, self()}),
    accept(L).
accept(L) ->
    {ok, S} = ssl:transport_accept(L),
    {ok, Pid} = scales_device_sup:device(S),
    ok = ssl:controlling_process(S, Pid),
    Pid ! go,
    accept(L).
