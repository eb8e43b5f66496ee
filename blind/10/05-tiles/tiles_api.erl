-module(tiles_api).
-export([answer/1]).

answer([<<"tile">>, I]) -> [<<"tile ">>, tiles_store:tile(binary_to_integer(I))];
answer([<<"areas">>, A]) -> [<<"watched ">>, integer_to_binary(tiles_areas:count(binary_to_integer(A)))].
