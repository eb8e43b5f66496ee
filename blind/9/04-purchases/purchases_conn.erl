%% One partner's connection: a frame is an order as JSON.
-module(purchases_conn).
-export([init/1]).
init(S) -> serve(S).
serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Frame} ->
            Answer = try
                Order = purchases_json:decode(Frame),
                {ok, No} = purchases_intake:take(order(Order)),
                [<<"{\"taken\":">>, integer_to_binary(No), <<"}">>]
            catch
                _:_ -> <<"{\"error\":\"bad order\"}">>
            end,
            ok = gen_tcp:send(S, Answer),
            serve(S);
        {error, _} -> gen_tcp:close(S)
    end.
%% what the intake needs of it
order(#{<<"partner">> := P, <<"lines">> := Lines} = O) ->
    Total = lists:sum([Q * Pr || #{<<"quantity">> := Q, <<"price">> := Pr} <- Lines]),
    Attached = case O of #{<<"attachment">> := A} -> {byte_size(A), erlang:phash2(A)}; _ -> none end,
    {P, length(Lines), Total, Attached}.
