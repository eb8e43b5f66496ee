-module(ledgers_api).
-export([handle/1]).
handle([<<"book">>, A, C]) -> with(A, fun(N, I) -> ledgers_partition:book(N, I, binary_to_integer(C)) end);
handle([<<"balance">>, A]) -> with(A, fun(N, I) -> ledgers_partition:balance(N, I) end);
handle(_) -> <<"?">>.
with(A, F) ->
    I = binary_to_integer(A),
    integer_to_list(F(erlang:phash2(I, 128), I)).
