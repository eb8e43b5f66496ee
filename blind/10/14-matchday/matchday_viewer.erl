%% One viewer's connection.
-module(matchday_viewer).
-export([init/1, encode/1]).

init(S) ->
    receive go -> ok end,
    case gen_tcp:recv(S, 0, 10000) of
        {ok, <<"watch ", _/binary>>} ->
            inet:setopts(S, [{active, true}, {packet, 4}]),
            matchday_feed:watch(self()),
            loop(S, 0);
        _ -> gen_tcp:close(S)
    end.

loop(S, N) ->
    receive
        {event, E} ->
            case gen_tcp:send(S, encode(E)) of
                ok -> loop(S, N + 1);
                {error, _} -> ok
            end;
        {tcp_closed, _} -> ok;
        {tcp, _, _} -> loop(S, N)
    end.

encode(E) -> json:encode(E).
