-module(library_pages).
-export([out/1]).
-include_lib("yaws/include/yaws_api.hrl").

out(A) ->
    case yaws_api:queryvar(A, "q") of
        {ok, Q} -> page([row(B) || B <- library_catalogue:search(list_to_binary(Q))]);
        undefined ->
            {ok, N} = yaws_api:queryvar(A, "n"),
            page([row(B) || B <- library_catalogue:book(list_to_integer(N))])
    end.

page(Rows) -> {html, ["<html><body><table>", Rows, "</table></body></html>"]}.

row({N, Title, Author, Year, _}) -> io_lib:format("<tr><td>~b</td><td>~s</td><td>~s</td><td>~b</td></tr>", [N, Title, Author, Year]).
