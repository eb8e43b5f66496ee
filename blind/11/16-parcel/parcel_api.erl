-module(parcel_api).
-export([answer/1]).

answer([<<"scan">> | Events]) ->
    [begin
         [P, E] = binary:split(X, <<":">>),
         parcel_events:save(binary:copy(P), binary:copy(E))
     end || X <- Events],
    <<"taken">>;
answer([<<"track">>, P]) -> [<<"last ">>, parcel_events:last(P)].
