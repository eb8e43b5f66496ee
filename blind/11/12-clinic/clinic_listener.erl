%% Accepts the phones. When there are no descriptors left it waits a second before it goes on.
-module(clinic_listener).
-export([start_link/0, init/1, connection/1]).
-include_lib("kernel/include/logger.hrl").

start_link() -> proc_lib:start_link(?MODULE, init, [self()]).

init(Parent) ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {reuseaddr, true}, {backlog, 1024}, {ip, {127, 0, 0, 1}}, {nodelay, true}]),
    {ok, P} = inet:port(L),
    register(?MODULE, self()),
    F = os:getenv("PORT_FILE"),
    ok = file:write_file(F ++ ".new", integer_to_list(P)),
    ok = file:rename(F ++ ".new", F),
    proc_lib:init_ack(Parent, {ok, self()}),
    accept(L).

accept(L) ->
    case gen_tcp:accept(L) of
        {ok, S} ->
            Pid = proc_lib:spawn(?MODULE, connection, [S]),
            case gen_tcp:controlling_process(S, Pid) of
                ok -> Pid ! go;
                _ -> exit(Pid, kill), gen_tcp:close(S)
            end;
        {error, Why} when Why =:= emfile; Why =:= enfile ->
            ?LOG_ERROR("acceptor suspended for 1000 ms: ~p", [Why]),
            timer:sleep(1000);
        {error, _} -> ok
    end,
    accept(L).

connection(S) ->
    receive go -> serve(S) end.

serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            ok = gen_tcp:send(S, [clinic_api:answer(string:lexemes(string:trim(Line), " ")), $\n]),
            serve(S);
        {error, _} -> gen_tcp:close(S)
    end.
