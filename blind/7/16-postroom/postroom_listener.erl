%% customer (2 bytes) and mail, each packet with its length before it. A process per connection, short-lived.
-module(postroom_listener).
-export([start_link/0, init/0, conn/1]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 128}]),
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
    case gen_tcp:recv(S, 0, 20000) of
        {ok, <<N:16, Mail/binary>>} ->
            {ok, W} = postroom_controller:mail(N, Mail),
            ok = gen_tcp:send(S, <<W:32>>),
            conn(S);
        {error, _} -> gen_tcp:close(S)
    end.
