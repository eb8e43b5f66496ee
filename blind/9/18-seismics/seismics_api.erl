%% station I | last | received
-module(seismics_api).
-export([start_link/0, run/0, serve/1]).
start_link() -> {ok, proc_lib:spawn_link(?MODULE, run, [])}.
run() ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 64}]),
    {ok, P} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = proc_lib:spawn(?MODULE, serve, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    accept(L).
serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            ok = gen_tcp:send(S, [answer(string:lexemes(string:trim(Line), " ")), $\n]),
            serve(S);
        {error, _} -> gen_tcp:close(S)
    end.
answer([<<"last">>]) -> io_lib:format("~0p", [seismics_analysis:last()]);
answer([<<"received">>]) -> integer_to_binary(gen_server:call(seismics_receiver, received));
answer([<<"station">>, I]) -> io_lib:format("~0p", [ets:lookup(seismics_samples, {binary_to_integer(I), 0})]).
