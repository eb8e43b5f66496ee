%% "list" names parts, "get" hands the connection over to a transfer
-module(depot_api).
-export([handle/1]).
handle([<<"list">>, P]) -> N = binary_to_integer(P), [[integer_to_list(I), $\s] || I <- lists:seq(N, N + 20)];
handle([<<"stock">>, N]) -> integer_to_list(erlang:phash2(N, 500));
handle(_) -> "?".
