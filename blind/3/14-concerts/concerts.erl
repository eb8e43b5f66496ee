%% Live concerts: programme pages and audio streams, on Yaws
-module(concerts).
-export([main/0, out/1, stream/2]).
-include_lib("yaws/include/yaws_api.hrl").

main() ->
    [Root, Port] = [os:getenv(K) || K <- ["DOCROOT", "HTTP_PORT"]],
    ok = yaws:start_embedded(Root,
        [{port, list_to_integer(Port)}, {listen, {127, 0, 0, 1}}, {servername, "concerts.example"}, {appmods, [{"/live", ?MODULE}]}, {access_log, false}],
        [{id, "concerts"}, {logdir, os:getenv("YAWS_LOG")}, {keepalive_timeout, 60000}, {max_connections, nolimit}, {ebin_dir, [filename:dirname(code:which(?MODULE))]}], "concerts"),
    ets:new(concerts, [named_table, public, {read_concurrency, true}]),
    [ets:insert(concerts, {N, rand:bytes(16000)}) || N <- lists:seq(1, 200)],
    timer:sleep(infinity).

out(A) ->
    case A#arg.appmoddata of
        "listen" ++ _ ->
            Yaws = self(),
            spawn(?MODULE, stream, [Yaws, 1]),
            {streamcontent, "audio/mpeg", <<"ID3">>};
        _ ->
            {content, "application/json", [<<"{\"now\":\"Concert\",\"listeners\":">>, integer_to_list(ets:info(concerts, size)), <<"}">>]}
    end.

%% a piece of some 16 kB each second
stream(Yaws, N) ->
    [{_, Piece}] = ets:lookup(concerts, N),
    case catch yaws_api:stream_chunk_deliver_blocking(Yaws, Piece) of
        {'EXIT', _} -> ok;
        {error, _} -> ok;
        _ -> timer:sleep(1000), stream(Yaws, N rem 200 + 1)
    end.
