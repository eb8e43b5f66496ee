-module(manuals_find).
-export([out/1]).
out(A) ->
    Word = case yaws_api:queryvar(A, "q") of {ok, P} -> P; _ -> "m1" end,
    Hits = [P || P <- ets:select(manuals_pages, [{{'$1', '_'}, [], ['$1']}]), string:find(P, Word) =/= nomatch],
    [{status, 200}, {content, "text/plain", iolist_to_binary(lists:join("\n", lists:sublist(lists:sort(Hits), 20)))}].
