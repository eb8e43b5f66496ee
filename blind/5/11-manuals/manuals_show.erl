-module(manuals_show).
-export([out/1]).
out(A) ->
    Page = case yaws_api:queryvar(A, "page") of {ok, P} -> P; _ -> "/printers/m1/c1.html" end,
    Design = manuals_db:design(Page),
    [{status, 200}, {header, {"X-Design", atom_to_list(Design)}},
     {content, "text/html", iolist_to_binary(["<html><body class=\"", atom_to_list(Design), "\">", manuals_db:page(Page), "</body></html>"])}].
