%% Positions of ships' beacons: come in over TCP from the coast stations, go out as datagrams to the displays.
-module(beacons).
-export([start/0, main/0, listener/0, station/1, forwarder/1, latest/0, alarms/0]).

start() ->
    register(beacons, spawn(?MODULE, main, [])).

main() ->
    process_flag(trap_exit, true),
    ets:new(beacons_latest, [named_table, public, {write_concurrency, true}]),
    register(beacons_alarms, spawn_link(?MODULE, alarms, [])),
    register(beacons_forwarder, spawn_link(?MODULE, forwarder, [list_to_integer(os:getenv("DISPLAY_PORT"))])),
    register(beacons_listener, spawn_link(?MODULE, listener, [])),
    receive {'EXIT', Pid, Why} -> exit({ended, Pid, Why}) end.

listener() ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 64}, {recbuf, 65536}]),
    {ok, P} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(?MODULE, station, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    accept(L).

%% P ship lat lon  |  A ship text
station(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, <<"P ", Rest/binary>>} ->
            [Ship | _] = binary:split(Rest, <<" ">>),
            ets:insert(beacons_latest, {binary:copy(Ship), erlang:system_time(millisecond)}),
            beacons_forwarder ! {position, binary:copy(Rest)},
            station(S);
        {ok, <<"A ", Rest/binary>>} ->
            Ref = make_ref(),
            beacons_alarms ! {alarm, self(), Ref, binary:copy(Rest)},
            receive {Ref, ok} -> ok end,
            ok = gen_tcp:send(S, <<"ok\n">>),
            station(S);
        {error, _} -> gen_tcp:close(S)
    end.

%% one socket for all, so that the displays see one sender
forwarder(Port) ->
    {ok, U} = gen_udp:open(0, [binary, {active, false}, {sndbuf, 262144}]),
    forward(U, Port, 0).
forward(U, Port, N) ->
    receive
        {position, P} ->
            ok = gen_udp:send(U, {127, 0, 0, 1}, Port, [<<"pos ">>, integer_to_binary(N), $ , P]),
            forward(U, Port, N + 1);
        {count, From} ->
            From ! {count, N},
            forward(U, Port, N)
    end.

alarms() ->
    receive
        {alarm, From, Ref, _} -> From ! {Ref, ok}, alarms()
    end.

latest() -> ets:info(beacons_latest, size).
