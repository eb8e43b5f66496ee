%% TCP front
-module(florist_listener).
-export([start_link/0, init/1, connection/1]).

start_link() -> proc_lib:start_link(?MODULE, init, [self()]).

init(Parent) ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {reuseaddr, true}, {backlog, 256}, {ip, {127, 0, 0, 1}}, {nodelay, true}, {buffer, 65536}]),
    {ok, P} = inet:port(L),
    register(?MODULE, self()),
    F = os:getenv("PORT_FILE"),
    ok = file:write_file(F ++ ".new", integer_to_list(P)),
    ok = file:rename(F ++ ".new", F),
    proc_lib:init_ack(Parent, {ok, self()}),
    accept(L).

accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = proc_lib:spawn(?MODULE, connection, [S]),
    case gen_tcp:controlling_process(S, Pid) of
        ok -> Pid ! go;
        _ -> exit(Pid, kill), gen_tcp:close(S)
    end,
    accept(L).

connection(S) ->
    receive go -> serve(S) end.

serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            Answer = florist_api:answer(binary:split(string:trim(Line), <<" ">>, [global])),
            ok = gen_tcp:send(S, [Answer, $\n]),
            serve(S);
        {error, _} -> gen_tcp:close(S)
    end.
