%% results of the matches to the boards in the stadiums
-module(scoreboard).
-export([start/0, init/0, accept/1, board/1, caster/0, match/1, archive/0, clock/0]).

start() -> spawn(?MODULE, init, []).

init() ->
    register(scoreboard, self()),
    ets:new(boards, [named_table, public]),
    ets:new(results, [named_table, public, ordered_set]),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {reuseaddr, true}, {ip, {127,0,0,1}}, {backlog, 128}]),
    {ok, Port} = inet:port(L),
    spawn_link(?MODULE, caster, []),
    spawn_link(?MODULE, archive, []),
    spawn_link(?MODULE, clock, []),
    [spawn_link(?MODULE, accept, [L]) || _ <- [1, 2, 3]],
    [spawn_link(?MODULE, match, [N]) || N <- lists:seq(1, 24)],
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    receive stop -> ok end.

accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(?MODULE, board, [S]),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(L).

%% a board says its name and then only PING from time to time
board(S) ->
    receive go -> ok end,
    {ok, Name} = gen_tcp:recv(S, 0),
    ets:insert(boards, {S, Name, erlang:system_time(second)}),
    board_loop(S, 0).
board_loop(S, N) ->
    case gen_tcp:recv(S, 0, 60000) of
        {ok, _} -> ets:update_element(boards, S, {3, erlang:system_time(second)}), board_loop(S, N + 1);
        {error, _} -> ets:delete(boards, S), gen_tcp:close(S)
    end.

%% every event goes to every board
caster() ->
    register(caster, self()),
    cast(0).
cast(N) ->
    receive
        {event, Match, Text} ->
            Line = [integer_to_list(N), $;, integer_to_list(Match), $;, Text, $\n],
            [gen_tcp:send(S, Line) || {S, _, _} <- ets:tab2list(boards)],
            archive ! {event, N, Match, Text},
            cast(N + 1);
        {count, From} ->
            From ! {count, N},
            cast(N)
    end.

match(N) ->
    timer:sleep(100 + rand:uniform(200)),
    caster ! {event, N, binary:copy(<<"goal corner foul throw-in ">>, 40 + rand:uniform(40))},
    match(N).

archive() ->
    register(archive, self()),
    archive(0).
archive(Lost) ->
    receive
        {event, N, Match, Text} ->
            ets:insert(results, {N, Match, byte_size(Text)}),
            N > 5000 andalso ets:delete(results, N - 5000),
            archive(Lost)
    end.

clock() ->
    timer:sleep(50),
    put(last, {erlang:system_time(second), ets:info(boards, size)}),
    clock().
