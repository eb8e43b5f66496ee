-module(exchange_app).
-behaviour(application).
-export([start/2, stop/1]).
start(_, _) ->
    {ok, Sup} = exchange_sup:start_link(),
    [{ok, _} = supervisor:start_child(exchange_accounts, [I]) || I <- lists:seq(1, 9000)],
    {ok, _} = supervisor:start_child(exchange_sup, #{id => exchange_listener, start => {exchange_listener, start_link, []}}),
    {ok, Sup}.
stop(_) -> ok.
