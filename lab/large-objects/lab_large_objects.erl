%% Routers look up the queue of a topic in a map that is one object of an ETS table: each lookup copies the whole map.
%% Healthy: each topic is an object of its own.
-module(lab_large_objects).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    [Table | Names] = lab:names(Context, router, lab:int(Context, routers, 5, 12) + 1),
    Topics = lab:int(Context, topics, 4000, 9000),
    PerS = lab:int(Context, messages_per_s, 60, 100),
    Routed = lab:counter(),
    lab:table(Table),
    Map = maps:from_list([{{topic, N}, {queue, N, [N, N]}} || N <- lists:seq(1, Topics)]),
    true = ets:insert(Table, case lab:sick(Context) of true -> {routes, Map}; false -> maps:to_list(Map) end),
    Find = case lab:sick(Context) of
               true -> fun(Topic) -> maps:get(Topic, ets:lookup_element(Table, routes, 2)) end;
               false -> fun(Topic) -> ets:lookup_element(Table, Topic, 2) end
           end,
    [
        lab:start(Name, fun() ->
            lab:at_rate(PerS, fun(Due) ->
                [begin {queue, _, _} = Find({topic, rand:uniform(Topics)}), lab:count(Routed) end || _ <- lists:seq(1, Due)]
            end)
        end)
     || Name <- Names
    ],
    lab:wait_until(routed, fun() -> lab:total(Routed) > 2 * PerS * length(Names) end),
    #{
        sick => lab:culprit(Context, Table),
        details => #{table => Table, routers => {list, Names}, topics => Topics, messages_per_s => PerS}
    }.
