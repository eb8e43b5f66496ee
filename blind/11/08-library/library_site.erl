%% The catalogue of the library behind Yaws.
-module(library_site).
-export([start/0]).

start() ->
    Dir = os:getenv("SITE_DIR"),
    Port = list_to_integer(os:getenv("SITE_PORT")),
    {ok, _} = library_catalogue:start(),
    ok = yaws:start_embedded(Dir ++ "/docroot",
        [{servername, "library"}, {listen, {127, 0, 0, 1}}, {port, Port}, {soptions, [{listen_opts, [{backlog, 1024}, {nodelay, true}]}]},
         {appmods, [{"/search", library_pages}, {"/book", library_pages}]}],
        [{logdir, Dir ++ "/log"}, {enable_soap, false}], "library"),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)).
