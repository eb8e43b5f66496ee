%% A connection: "G" id asks for a photo's hash, "U" id w h pixels uploads a photo.
-module(photoid_conn).
-export([start/1, init/1]).

start(S) -> proc_lib:start(?MODULE, init, [S]).

init(S) ->
    proc_lib:init_ack({ok, self()}),
    receive go -> inet:setopts(S, [{active, once}]), loop(S) end.

loop(S) ->
    receive
        {tcp, S, <<"G", Id:32>>} ->
            Answer = case photoid_index:lookup(Id) of {ok, H} -> <<H:64>>; not_found -> <<"-">> end,
            gen_tcp:send(S, Answer),
            inet:setopts(S, [{active, once}]),
            loop(S);
        {tcp, S, <<"U", Id:32, W:16, H:16, Pixels/binary>>} ->
            Hash = photoid_worker:upload(Id, Pixels, W, H),
            gen_tcp:send(S, <<Hash:64>>),
            inet:setopts(S, [{active, once}]),
            loop(S);
        {tcp_closed, S} -> ok
    end.
