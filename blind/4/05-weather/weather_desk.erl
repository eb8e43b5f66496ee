%% Answers questions; each in a process of its own, which lives for some milliseconds.
-module(weather_desk).
-export([start_link/0, init/1, serve/1, answer/3]).
start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
init(Parent) ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 256}, {nodelay, true}]),
    {ok, Port} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    proc_lib:init_ack(Parent, {ok, self()}),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    P = proc_lib:spawn(?MODULE, serve, [S]),
    ok = gen_tcp:controlling_process(S, P),
    P ! go,
    accept(L).
serve(S) -> receive go -> loop(S) end.
loop(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            [What, N] = string:lexemes(string:trim(Line), " "),
            Ref = make_ref(),
            {_, M} = spawn_monitor(?MODULE, answer, [{self(), Ref}, What, binary_to_integer(N)]),
            R = receive {Ref, X} -> erlang:demonitor(M, [flush]), X; {'DOWN', M, _, _, _} -> error end,
            ok = gen_tcp:send(S, [io_lib:format("~p", [R]), $\n]),
            loop(S);
        {error, _} -> ok
    end.
answer({From, Ref}, <<"now">>, N) -> From ! {Ref, weather_values:get(N)};
answer({From, Ref}, <<"map">>, N) -> From ! {Ref, length([T || I <- lists:seq(N, N + 400), T <- [weather_values:get(I)], T > 10])};
answer({From, Ref}, <<"forecast">>, N) -> From ! {Ref, forecast([weather_values:get(I) || I <- lists:seq(N, N + 63)], 60)}.
%% a small model of the air
forecast(Ts, 0) -> round(lists:sum(Ts));
forecast([A | _] = Ts, K) -> forecast(step(Ts, A), K - 1).
step([A, B, C | R], F) -> [(A + 2 * B + C) / 4 + math:sin(B) / 50 | step([B, C | R], F)];
step([A, B], F) -> [(A + B) / 2, (B + F) / 2].
