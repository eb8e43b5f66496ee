%% Players: 8000 are signed in, some of them play.
-module(lobby_players).
-export([start/1, times/0]).
start(N) ->
    spawn(fun() ->
        register(lobby_players, self()),
        ets:new(lobby_times, [named_table, public, {write_concurrency, true}]),
        ets:insert(lobby_times, [{n, 0}, {us, 0}, {max, 0}]),
        [{ok, _} = supervisor:start_child(lobby_session_sup, [I]) || I <- lists:seq(1, N)],
        [spawn_link(fun() -> play(N) end) || _ <- lists:seq(1, 60)],
        receive never -> ok end
    end).
play(N) ->
    timer:sleep(20 + rand:uniform(60)),
    T = erlang:monotonic_time(microsecond),
    lobby_session:input(lobby_presence:find(rand:uniform(N)), rand:uniform(1000)),
    D = erlang:monotonic_time(microsecond) - T,
    ets:update_counter(lobby_times, n, 1), ets:update_counter(lobby_times, us, D),
    [{_, M}] = ets:lookup(lobby_times, max),
    D > M andalso ets:insert(lobby_times, {max, D}),
    play(N).
times() ->
    [[{_, N}], [{_, U}], [{_, M}]] = [ets:lookup(lobby_times, K) || K <- [n, us, max]],
    ets:insert(lobby_times, [{n, 0}, {us, 0}, {max, 0}]),
    {N, U / max(1, N) / 1000, M / 1000}.
