%% buy|sell PAPER PRICE AMOUNT | last | balance MEMBER
-module(exchange_conn).
-export([init/1]).
init(S) -> serve(S).
serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            ok = gen_tcp:send(S, [answer(string:lexemes(string:trim(Line), " ")), $\n]),
            serve(S);
        {error, _} -> gen_tcp:close(S)
    end.
answer([<<"last">>]) -> integer_to_binary(length(exchange_trades:last(20)));
answer([<<"balance">>, M]) -> integer_to_binary(exchange_account:balance(binary_to_integer(M)));
answer([Side, Paper, Price, Amount]) ->
    {N, T} = exchange_book:order(case Side of <<"buy">> -> buy; <<"sell">> -> sell end, binary_to_integer(Paper), binary_to_integer(Price), binary_to_integer(Amount)),
    [integer_to_binary(N), $ , atom_to_binary(T)].
