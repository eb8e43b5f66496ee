%% pages and the design of the directories
-module(manuals_db).
-export([start/0, page/1, design/1]).
start() ->
    Me = self(),
    Pid = spawn(fun() -> init(Me) end),
    receive {Pid, ready} -> ok end.
init(From) ->
    register(manuals_db, self()),
    ets:new(manuals_pages, [named_table, public, {read_concurrency, true}]),
    ets:new(manuals_design, [named_table, public, {read_concurrency, true}]),
    [ets:insert(manuals_pages, {lists:flatten(io_lib:format("/~s/m~p/c~p.html", [Line, M, C])), text(M, C)})
     || Line <- ["printers", "scanners", "cutters"], M <- lists:seq(1, 20), C <- lists:seq(1, 10)],
    [ets:insert(manuals_design, {D, N}) || {D, N} <- [{"/", plain}, {"/printers", blue}, {"/cutters/m7", dark}]],
    From ! {self(), ready},
    receive stop -> ok end.
text(M, C) -> iolist_to_binary([["<p>Step ", integer_to_list(K), " of chapter ", integer_to_list(C), ", model ", integer_to_list(M), "</p>\n"] || K <- lists:seq(1, 60)]).
page(P) -> case ets:lookup(manuals_pages, P) of [{_, T}] -> T; [] -> <<"<p>This page has moved.</p>">> end.
%% the design of the nearest directory above
design(Path) ->
    Dir = filename:dirname(Path),
    case ets:lookup(manuals_design, Dir) of
        [{_, Design}] -> Design;
        [] -> design(Dir)
    end.
