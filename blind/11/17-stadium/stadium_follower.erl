%% Sends what happens in the match to one follower.
-module(stadium_follower).
-export([run/1]).

run(S) ->
    receive
        {positions, M, T, Players} ->
            case gen_tcp:send(S, [M, $ , integer_to_binary(T), [player(P) || P <- Players], $\n]) of
                ok -> run(S);
                {error, _} -> gen_tcp:close(S)
            end;
        {tcp_closed, S} -> ok;
        {tcp_error, S, _} -> gen_tcp:close(S);
        _ -> run(S)
    end.

player({P, X, Y, Speed}) ->
    [<<" {\"player\":">>, integer_to_binary(P), <<",\"x\":">>, integer_to_binary(X), <<",\"y\":">>, integer_to_binary(Y),
     <<",\"speed\":">>, integer_to_binary(Speed), $}].
