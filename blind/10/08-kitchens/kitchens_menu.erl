-module(kitchens_menu).
-export([start_link/0, name/1, init/1]).

start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
name(Dish) -> case ets:lookup(?MODULE, Dish) of [{_, N}] -> N; [] -> Dish end.

init(Parent) ->
    ets:new(?MODULE, [named_table, protected]),
    ets:insert(?MODULE, [{<<"soup">>, <<"Soup of the day">>}, {<<"pasta">>, <<"Pasta al forno">>}, {<<"fish">>, <<"Fish and chips">>}, {<<"cake">>, <<"Apple cake">>}]),
    proc_lib:init_ack(Parent, {ok, self()}),
    receive stop -> ok end.
