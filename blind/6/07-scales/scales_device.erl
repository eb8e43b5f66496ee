%% One scale: the handshake, then a line for each thing that is weighed.
-module(scales_device).
-export([start_link/1, init/1]).
start_link(S) -> {ok, proc_lib:spawn_link(?MODULE, init, [S])}.
init(S) ->
    receive go -> ok end,
    case ssl:handshake(S) of
        {ok, Tls} -> weigh(Tls);
        {error, _} -> ok
    end.
weigh(Tls) ->
    case ssl:recv(Tls, 0, 60000) of
        {ok, Line} ->
            [Scale, Plu, Grams] = string:lexemes(string:trim(Line), " "),
            ets:insert(scales_last, {Scale, Plu, Grams}),
            ok = ssl:send(Tls, [integer_to_list(scales_prices:price(Plu) * binary_to_integer(Grams) div 1000), "\n"]),
            weigh(Tls);
        {error, _} -> ssl:close(Tls)
    end.
