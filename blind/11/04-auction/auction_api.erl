-module(auction_api).
-export([answer/1]).

answer([<<"lot">>, L]) -> ["lot ", integer_to_list(auction_lots:highest(binary_to_integer(L)))];
answer([<<"bid">>, L, A]) -> ["highest ", integer_to_list(auction_lots:bid(binary_to_integer(L), binary_to_integer(A)))];
answer([<<"watch">>, L]) -> next_bid(binary_to_integer(L)).

%% the answer is given when somebody bids
next_bid(Lot) ->
    ok = auction_lots:follow(Lot),
    receive
        {bid, Lot, B} -> ["news ", integer_to_list(B)]
    end.
