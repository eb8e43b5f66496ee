%% A small HTTP shop that shows what beamtune finds and tunes: README.md describes its problems.
-module(shop).

-export([start/0, sell/1]).
%% The stock keeper, a process like a gen_server without the parts that are not needed here.
-export([keeper/0]).

%% Items that a keeper processes per order.
-define(ITEMS, 3000).
%% A separate process builds the receipt of each order. Its heap, in words.
-define(RECEIPT_HEAP, 24000).
-define(RECEIPT_LINES, 2500).
%% Customers of sell/1.
-define(CUSTOMERS, 20).

start() ->
    Keepers = start_keepers(),
    {ok, Listen} = gen_tcp:listen(number("SHOP_PORT", 9292), [
        binary, {ip, {127, 0, 0, 1}}, {active, false}, {packet, http_bin}, {reuseaddr, true}, {nodelay, true}, {backlog, 1024}
    ]),
    accept(Listen, Keepers).

%% Takes this number of orders without HTTP, and ends: a job for measurements.
sell([Orders]) ->
    Keepers = start_keepers(),
    Each = list_to_integer(Orders) div ?CUSTOMERS,
    Customers = [spawn_monitor(fun() -> buy(Keepers, Each) end) || _ <- lists:seq(1, ?CUSTOMERS)],
    [receive {'DOWN', Monitor, process, _, normal} -> ok end || {_, Monitor} <- Customers],
    halt().

buy(_, 0) -> ok;
buy(Keepers, Left) -> _ = order(Keepers), buy(Keepers, Left - 1).

%% The names of the keepers.
start_keepers() ->
    Names = [keeper_name(N) || N <- lists:seq(1, number("SHOP_KEEPERS", 1))],
    [register(Name, proc_lib:spawn_link(?MODULE, keeper, [])) || Name <- Names],
    list_to_tuple(Names).

accept(Listen, Keepers) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = proc_lib:spawn(fun() -> receive go -> serve(Socket, Keepers) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen, Keepers).

%% One connection: an order per request.
serve(Socket, Keepers) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, {http_request, _, _, _}} ->
            ok = headers(Socket),
            Body = integer_to_binary(order(Keepers)),
            Length = integer_to_binary(byte_size(Body)),
            ok = gen_tcp:send(Socket, [<<"HTTP/1.1 200 OK\r\nContent-Length: ">>, Length, <<"\r\n\r\n">>, Body]),
            serve(Socket, Keepers);
        _ ->
            gen_tcp:close(Socket)
    end.

headers(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, http_eoh} -> ok;
        {ok, {http_header, _, _, _, _}} -> headers(Socket)
    end.

order(Keepers) ->
    Left = take(element(erlang:unique_integer([positive]) rem tuple_size(Keepers) + 1, Keepers)),
    Left + receipt().

%% Every order goes through a keeper, which is the bottleneck.
take(Keeper) ->
    Ref = make_ref(),
    Keeper ! {take, self(), Ref},
    receive {Ref, Left} -> Left end.

keeper() ->
    receive
        {take, From, Ref} ->
            From ! {Ref, lists:sum([erlang:phash2({item, N}) band 7 || N <- lists:seq(1, ?ITEMS)])},
            keeper()
    end.

receipt() ->
    Options = [monitor, {min_heap_size, ?RECEIPT_HEAP}],
    {_, Monitor} = spawn_opt(fun() -> exit({lines, length(lists:seq(1, ?RECEIPT_LINES))}) end, Options),
    receive {'DOWN', Monitor, process, _, {lines, Lines}} -> Lines end.

keeper_name(N) -> list_to_atom("shop_keeper_" ++ integer_to_list(N)).

number(Variable, Default) ->
    case os:getenv(Variable) of
        false -> Default;
        Text -> list_to_integer(Text)
    end.
