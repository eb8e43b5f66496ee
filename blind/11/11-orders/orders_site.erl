%% The order desk of a mail-order house behind Yaws.
-module(orders_site).
-export([start/0]).

start() ->
    Dir = os:getenv("SITE_DIR"),
    Port = list_to_integer(os:getenv("SITE_PORT")),
    {ok, _} = orders_numbers:start(),
    {ok, _} = orders_book:start(),
    ok = yaws:start_embedded(Dir ++ "/docroot",
        [{servername, "orders"}, {listen, {127, 0, 0, 1}}, {port, Port}, {soptions, [{listen_opts, [{backlog, 1024}, {nodelay, true}]}]}, {appmods, [{"/order", orders_pages}, {"/state", orders_pages}]}],
        [{logdir, Dir ++ "/log"}, {enable_soap, false}], "orders"),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)).
