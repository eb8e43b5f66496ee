%% What the web tier calls, and the web tier's users.
-module(profiles_api).
-export([start_users/1, update/2, roaming/1, lat/0]).

update(Id, Fields) ->
    Old = case profiles_store:read(Id) of [{_, P}] -> P; [] -> #{} end,
    New = maps:merge(Old, Fields),
    profiles_store:write(Id, New),
    profiles_replica:changed(Id, New).

%% is the user signed in at the other site?
roaming(Peer) ->
    {Us, R} = timer:tc(fun() -> catch gen_server:call({profiles_follower, Peer}, session, 5000) end),
    Key = case R of {ok, _} -> roaming_ok; _ -> roaming_failed end,
    ets:update_counter(profiles_store, Key, [{2, 1}, {3, Us}], {Key, 0, 0}).

lat() -> [hd(ets:lookup(profiles_store, K) ++ [{K, 0, 0}]) || K <- [roaming_ok, roaming_failed]].

start_users(N) ->
    {ok, Peer} = application:get_env(profiles, peer),
    [spawn(fun() -> user() end) || _ <- lists:seq(1, N)],
    [spawn(fun() -> roamer(Peer) end) || _ <- lists:seq(1, N div 5)],
    ok.

user() ->
    timer:sleep(400 + rand:uniform(800)),
    Id = rand:uniform(3000),
    case rand:uniform(4) of
        1 -> profiles_store:read(Id);
        _ -> update(Id, #{seen => os:system_time(second), avatar => rand:bytes(14000 + rand:uniform(30000)),
                          tags => [integer_to_binary(rand:uniform(1000)) || _ <- lists:seq(1, 20)]})
    end,
    user().

roamer(Peer) ->
    timer:sleep(500 + rand:uniform(1000)),
    roaming(Peer),
    roamer(Peer).
