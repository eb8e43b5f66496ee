%% One connection of a web shop: asks for the best seats and their price.
-module(tickets_conn).
-export([start/0, init/0]).
start() -> proc_lib:spawn(?MODULE, init, []).
init() ->
    receive {socket, S} -> loop(S) after 5000 -> exit(no_socket) end.
loop(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, <<Hall:16, N:8, _/binary>>} ->
            T = erlang:monotonic_time(microsecond),
            {Seats, Price} = tickets_price:best(Hall, N),
            ok = gen_tcp:send(S, io_lib:format("~w ~w~n", [Price, Seats])),
            tickets_stats:done(erlang:monotonic_time(microsecond) - T),
            loop(S);
        {error, closed} -> ok
    end.
