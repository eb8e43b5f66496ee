-module(museum_api).
-export([answer/1]).

answer([<<"put">>, O, Photo]) -> ["put ", integer_to_list(museum_collection:put(binary:copy(O), binary:copy(Photo)))];
answer([<<"size">>, O]) -> ["size ", integer_to_list(museum_collection:size(O))].
