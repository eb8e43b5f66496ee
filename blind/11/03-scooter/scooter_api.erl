-module(scooter_api).
-export([answer/1]).

answer([<<"at">>, S, X, Y]) ->
    scooter_places:at(binary:copy(S), binary_to_integer(X), binary_to_integer(Y)),
    <<"ok">>;
answer([<<"near">>, X, Y]) -> ["near ", integer_to_list(scooter_places:near(binary_to_integer(X), binary_to_integer(Y)))].
