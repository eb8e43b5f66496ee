%% Pages of the gazette: put together anew for each reader (real work), articles from an ETS table.
-module(gazette_page).
-include_lib("/usr/lib/yaws/include/yaws_api.hrl").
-export([out/1, start/0]).

start() ->
    spawn(fun() ->
        ets:new(gazette_articles, [named_table, public, {read_concurrency, true}]),
        ets:new(gazette_hits, [named_table, public, {write_concurrency, true}]),
        [ets:insert(gazette_articles, {I, "Article " ++ integer_to_list(I), [<<"A sentence of this article, of which there are many. ">> || _ <- lists:seq(1, 20 + I rem 60)]}) || I <- lists:seq(1, 5000)],
        register(gazette_articles, self()),
        receive stop -> ok end
    end).

out(#arg{appmoddata = P}) ->
    case catch list_to_integer(string:trim(P, both, "/")) of
        N when is_integer(N), N > 0, N =< 5000 ->
            [{_, Title, Text}] = ets:lookup(gazette_articles, N),
            ets:update_counter(gazette_hits, N, 1, {N, 0}),
            More = [["<li>", ets:lookup_element(gazette_articles, (N * I) rem 5000 + 1, 2), "</li>"] || I <- lists:seq(1, 40)],
            {content, "text/html", iolist_to_binary(["<html><h1>", Title, "</h1>", [["<p>", S, "</p>\n"] || S <- Text], "<ul>", More, "</ul></html>"])};
        _ -> [{status, 404}, {content, "text/plain", "no such article"}]
    end.
