-module(florist_api).
-export([answer/1]).

answer([<<"price">>, F]) -> ["price ", integer_to_list(florist_catalogue:price(F))];
answer([<<"stock">>, F]) -> ["stock ", integer_to_list(florist_catalogue:stock(F))];
answer([<<"checkout">> | Fs]) -> ["total ", integer_to_list(florist_catalogue:checkout(Fs))].
