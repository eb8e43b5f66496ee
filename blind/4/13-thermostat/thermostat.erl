%% Keeps the rooms of an office building warm: one process for each room, plain Erlang.
-module(thermostat).
-export([start/0, room/2, boiler/1, panel/1]).
-define(ROOMS, 300).

start() ->
    Self = self(),
    register(boiler, spawn(?MODULE, boiler, [0.0])),
    ets:new(rooms, [named_table, public, {write_concurrency, true}]),
    [ets:insert(rooms, {N, spawn_link(?MODULE, room, [N, 18.0 + N rem 7])}) || N <- lists:seq(1, ?ROOMS)],
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 64}, {nodelay, true}]),
    {ok, Port} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    register(thermostat, Self),
    accept(L).

accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    P = spawn(?MODULE, panel, [S]),
    ok = gen_tcp:controlling_process(S, P),
    P ! go,
    accept(L).

%% a room measures every 20 ms
room(N, T) ->
    erlang:send_after(20, self(), measure),
    loop(N, T, 20.5).
loop(N, T, Wish) ->
    receive
        measure ->
            erlang:send_after(20, self(), measure),
            T1 = T + (12.0 - T) * 0.0001,
            case T1 < Wish of true -> boiler ! {heat, N}; false -> ok end,
            loop(N, case T1 < Wish of true -> T1 + 0.003; false -> T1 end, Wish);
        {ask, From, Ref} ->
            From ! {Ref, T},
            loop(N, T, Wish)
    end.

boiler(E) ->
    receive {heat, _} -> boiler(E + 0.01) end.

panel(S) -> receive go -> serve(S) end.
serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, <<"room ", R/binary>>} ->
            [{_, P}] = ets:lookup(rooms, 1 + binary_to_integer(string:trim(R)) rem ?ROOMS),
            Ref = make_ref(),
            P ! {ask, self(), Ref},
            T = receive {Ref, X} -> X after 5000 -> none end,
            ok = gen_tcp:send(S, io_lib:format("~.2f~n", [T])),
            serve(S);
        {error, _} -> ok
    end.
