-module(loyalty_listener).
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
        {ok, Line} ->
            A = case [binary_to_integer(X) || X <- binary:split(string:trim(Line), <<" ">>, [global])] of
                    [C, Shop, Cents] ->
                        R = loyalty_accounts:book(C, Shop, Cents),
                        loyalty_stats:count(case R of {ok, _} -> ok; _ -> R end),
                        R;
                    [C] -> loyalty_accounts:points(C)
                end,
            ok = gen_tcp:send(S, case A of {ok, {N, L}} -> io_lib:format("booked ~b ~s~n", [N, L]); {ok, N} -> io_lib:format("~b~n", [N]); {error, _} -> "not booked, try again later\n" end),
            conn(S);
        {error, _} -> ok
    end.
