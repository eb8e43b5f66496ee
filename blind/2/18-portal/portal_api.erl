%% The API of the portal: opening hours, forms, search. A quarter of the answers is made anew.
-module(portal_api).
-include_lib("/usr/lib/yaws/include/yaws_api.hrl").
-export([out/1, start/0]).

start() ->
    spawn(fun() ->
        ets:new(portal_offices, [named_table, public, {read_concurrency, true}]),
        ets:new(portal_cache, [named_table, public, {read_concurrency, true}, {write_concurrency, true}]),
        [ets:insert(portal_offices, {I, "office " ++ integer_to_list(I), [{D, 8, 12 + D} || D <- lists:seq(1, 5)]}) || I <- lists:seq(1, 4000)],
        register(portal_offices, self()),
        receive stop -> ok end
    end).

out(#arg{appmoddata = Path}) ->
    case string:tokens(Path, "/") of
        ["office", N] -> office(list_to_integer(N));
        ["search", W] -> search(W);
        _ -> [{status, 404}, {content, "text/plain", "no such thing"}]
    end.

office(N) ->
    case ets:lookup(portal_cache, N) of
        [{_, At, Page}] when At > 0 ->
            rand:uniform(4) =:= 1 andalso ets:delete(portal_cache, N),
            {content, "text/html", Page};
        [] ->
            [{_, Name, Hours}] = ets:lookup(portal_offices, N rem 4000 + 1),
            Page = iolist_to_binary(["<h1>", Name, "</h1>", [io_lib:format("<p>~w: ~w - ~w</p>~n", [D, A, B]) || {D, A, B} <- Hours, _ <- lists:seq(1, 6)]]),
            ets:insert(portal_cache, {N, erlang:system_time(second), Page}),
            {content, "text/html", Page}
    end.

search(W) ->
    Hits = [Name || N <- lists:seq(1, 300), [{_, Name, _}] <- [ets:lookup(portal_offices, N)], lists:prefix(W, lists:reverse(Name))],
    {content, "text/plain", lists:join("\n", Hits)}.
