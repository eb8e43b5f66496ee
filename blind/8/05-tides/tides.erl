%% Water levels. Gauges publish, whoever looks at a harbour subscribes for as long as the look lasts.
-module(tides).
-export([start/0, acceptor/1, serve/1, gauge/2, look/3, archive/1]).

start() ->
    register(tides_pubsub, spawn(tides_pubsub, init, [])),
    register(tides_archive, spawn(?MODULE, archive, [#{}])),
    [spawn(?MODULE, gauge, [H, 0]) || H <- lists:seq(1, 20)],
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {reuseaddr, true}, {backlog, 512}, {ip, {127, 0, 0, 1}}, {nodelay, true}]),
    {ok, P} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    register(tides_listener, self()),
    acceptor(L).

acceptor(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(?MODULE, serve, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    acceptor(L).

serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            Answer = case binary:split(string:trim(Line), <<" ">>, [global]) of
                [<<"look">>, H] -> watch(binary_to_integer(H));
                [<<"mean">>, H] -> tides_archive ! {mean, binary_to_integer(H), self()}, receive {mean, M} -> M after 5000 -> late end
            end,
            case gen_tcp:send(S, io_lib:format("~w~n", [Answer])) of ok -> serve(S); _ -> gen_tcp:close(S) end;
        {error, _} -> gen_tcp:close(S)
    end.

%% a look is a process of its own: it waits for the next two levels and ends
watch(H) ->
    {Pid, Ref} = spawn_monitor(?MODULE, look, [self(), H, []]),
    receive
        {level, Pid, X} -> erlang:demonitor(Ref, [flush]), X;
        {'DOWN', Ref, _, _, _} -> gone
    after 20000 -> late
    end.

look(From, H, []) -> tides_pubsub:subscribe({harbour, H}, self()), look(From, H, [none]);
look(From, H, Ls) ->
    receive
        {pub, {harbour, H}, L} when length(Ls) > 1 -> From ! {level, self(), (L + hd(Ls)) div 2};
        {pub, {harbour, H}, L} -> look(From, H, [L | Ls])
    end.

%% each harbour's gauge: fifty levels a second
gauge(H, N) ->
    timer:sleep(19),
    L = round(200 * math:sin(N / 40 + H)) + rand:uniform(3),
    tides_pubsub:publish({harbour, H}, L),
    tides_archive ! {level, H, L},
    gauge(H, N + 1).

archive(M) ->
    receive
        {level, H, L} -> archive(M#{H => lists:sublist([L | maps:get(H, M, [])], 60)});
        {mean, H, From} -> Ls = maps:get(H, M, [0]), From ! {mean, lists:sum(Ls) div length(Ls)}, archive(M)
    end.
