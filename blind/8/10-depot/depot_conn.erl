%% one connection of a workshop
-module(depot_conn).
-export([start_link/1, init/1]).

start_link(S) -> {ok, proc_lib:spawn_link(?MODULE, init, [S])}.

init(S) -> receive go -> serve(S) after 5000 -> ok end.

serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, <<"get ", N/binary>>} -> transfer(S, string:trim(N));
        {ok, Line} ->
            Answer = depot_api:handle(binary:split(string:trim(Line), <<" ">>, [global])),
            case gen_tcp:send(S, [Answer, $\n]) of ok -> serve(S); _ -> gen_tcp:close(S) end;
        {error, _} -> gen_tcp:close(S)
    end.

%% the drawing of a part, in two pieces
transfer(S, N) ->
    depot_clock:begins(self()),
    Drawing = depot_drawings:make(binary_to_integer(N)),
    <<A:(byte_size(Drawing) div 2)/binary, B/binary>> = Drawing,
    R = case gen_tcp:send(S, [integer_to_list(byte_size(Drawing)), $\n, A]) of ok -> gen_tcp:send(S, B); E -> E end,
    depot_clock:ends(self()),
    case R of ok -> serve(S); _ -> gen_tcp:close(S) end.
