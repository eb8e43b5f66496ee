%% Relays pictures of cameras to the guards' screens. One pair of processes for each camera:
%% the one takes in what the camera sends, the other gives it to the screen.
-module(relays).
-export([start/0]).

start() ->
    spawn(fun() ->
        register(relays, self()),
        ets:new(relays_seen, [named_table, public, {write_concurrency, true}]),
        {ok, L} = gen_tcp:listen(0, [binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}]),
        {ok, P} = inet:port(L),
        register(relays_clock, spawn(fun() -> clock(0) end)),
        spawn_link(fun() -> accept(L) end),
        ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
        guide(#{})
    end).

%% brings cameras and screens together
guide(Waiting) ->
    receive
        {screen, Camera, Pid} -> guide(Waiting#{Camera => Pid});
        {camera, Camera, Pid} ->
            case maps:take(Camera, Waiting) of
                {Screen, W} -> Pid ! {relay, Screen}, guide(W);
                error -> self() ! {camera, Camera, Pid}, timer:sleep(5), guide(Waiting)
            end
    end.

clock(N) -> timer:sleep(1000), clock(N + 1).

accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(fun() -> receive go -> hello(S) end end),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(L).

hello(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, <<"screen ", Camera/binary>>} ->
            inet:setopts(S, [{sndbuf, 65536}]),
            relays ! {screen, Camera, self()},
            screen(S, Camera);
        {ok, <<"camera ", Camera/binary>>} ->
            relays ! {camera, Camera, self()},
            receive {relay, Screen} ->
                inet:setopts(S, [{active, true}]),
                camera(S, Camera, Screen)
            end
    end.

camera(S, Camera, Screen) ->
    receive
        {tcp, S, Picture} ->
            ets:update_counter(relays_seen, Camera, 1, {Camera, 0}),
            Screen ! {picture, Picture},
            camera(S, Camera, Screen);
        {tcp_closed, S} -> Screen ! stop
    end.

screen(S, Camera) ->
    receive
        {picture, Picture} ->
            case gen_tcp:send(S, Picture) of
                ok -> screen(S, Camera);
                {error, _} -> gone
            end;
        stop -> gen_tcp:close(S)
    end.
