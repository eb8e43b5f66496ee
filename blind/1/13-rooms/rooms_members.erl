%% The members: write in the rooms, read what was written last.
-module(rooms_members).
-export([start/1, text/0, lat/0]).

text() ->
    Words = {"hello", "who", "is", "there", "train", "tomorrow", "late", "again", "coffee", "meeting", "fine"},
    lists:join($ , [element(rand:uniform(11), Words) || _ <- lists:seq(1, 6)]) -- [].

start(N) ->
    {ok, Rooms} = application:get_env(rooms, rooms),
    spawn(fun() ->
        rooms_lat = ets:new(rooms_lat, [named_table, public]),
        [spawn_link(fun() -> member(I, Rooms) end) || I <- lists:seq(1, N)],
        timer:sleep(infinity)
    end),
    ok.

lat() -> ets:tab2list(rooms_lat).

member(I, Rooms) ->
    timer:sleep(100 + rand:uniform(400)),
    {Us, _} = timer:tc(fun() ->
        case rand:uniform(4) of
            1 -> rooms_room:say(rand:uniform(Rooms), I, lists:flatten(text()));
            _ -> rooms_room:recent(rand:uniform(Rooms), 15)
        end
    end),
    ets:update_counter(rooms_lat, calls, [{2, 1}, {3, Us}], {calls, 0, 0}),
    member(I, Rooms).
