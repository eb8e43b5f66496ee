%% one connection: a line is a request, a line is the answer
-module(weighbridge_conn).
-export([start_link/1, init/1]).

start_link(S) -> {ok, proc_lib:spawn_link(?MODULE, init, [S])}.

init(S) -> receive go -> serve(S) after 5000 -> ok end.

serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            Answer = weighbridge_api:handle(binary:split(string:trim(Line), <<" ">>, [global])),
            case gen_tcp:send(S, [Answer, $\n]) of ok -> serve(S); _ -> gen_tcp:close(S) end;
        {error, _} -> gen_tcp:close(S)
    end.
