-module(kitchens_api).
-export([answer/1]).

answer([<<"order">>, Table, Dish]) ->
    kitchens_queue:order({Table, Dish, erlang:system_time(second)}),
    <<"ok">>;
answer([<<"waiting">>]) -> [<<"waiting ">>, integer_to_binary(kitchens_queue:waiting())].
