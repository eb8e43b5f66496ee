%% Stock quotes: one process makes them, one hands them out, one process per viewer writes to its socket.
-module(quotes).
-export([start/0, hub/1, feed/1, accept/2, viewer/2, history/1]).

start() ->
    Hub = spawn(?MODULE, hub, [[]]), register(quotes_hub, Hub),
    register(quotes_history, spawn(?MODULE, history, [#{}])),
    register(quotes_feed, spawn(?MODULE, feed, [0])),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {reuseaddr, true}, {backlog, 512}, {ip, {127, 0, 0, 1}}, {sndbuf, 16384}]),
    {ok, P} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    register(quotes_listener, self()),
    accept(L, Hub).

accept(L, Hub) ->
    {ok, S} = gen_tcp:accept(L),
    V = spawn(?MODULE, viewer, [S, Hub]),
    ok = gen_tcp:controlling_process(S, V),
    V ! go,
    accept(L, Hub).

%% 120 quotes a second
feed(N) ->
    timer:sleep(8),
    Q = iolist_to_binary(io_lib:format("Q~7..0w price ~.2f volume ~w ~s\n", [rand:uniform(5000), rand:uniform() * 500, rand:uniform(100000), lists:duplicate(150, $.)])),
    quotes_hub ! {quote, Q},
    quotes_history ! {quote, N, Q},
    feed(N + 1).

hub(Viewers) ->
    receive
        {quote, Q} -> [V ! {quote, Q} || V <- Viewers], hub(Viewers);
        {join, V} -> erlang:monitor(process, V), hub([V | Viewers]);
        {'DOWN', _, process, V, _} -> hub(lists:delete(V, Viewers))
    end.

history(M) ->
    receive {quote, N, Q} -> history(maps:remove(N - 2000, M#{N => Q})) end.

viewer(S, Hub) ->
    receive go -> ok end,
    Hub ! {join, self()},
    ok = inet:setopts(S, [{active, once}]),
    watch(S).

watch(S) ->
    receive
        {quote, Q} ->
            case gen_tcp:send(S, Q) of
                ok -> watch(S);
                {error, _} -> gen_tcp:close(S)
            end;
        {tcp, S, _} -> inet:setopts(S, [{active, once}]), watch(S);
        {tcp_closed, S} -> ok;
        {tcp_error, S, _} -> gen_tcp:close(S)
    end.
