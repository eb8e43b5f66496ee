-module(archive_api).
-export([handle/1]).
handle([<<"ls">>, B]) ->
    Ref = make_ref(),
    {ok, _} = archive_listing:start(binary_to_integer(B), {self(), Ref}),
    receive {Ref, N, _} -> integer_to_list(N) after 5000 -> "late" end;
handle([<<"head">>, B, O]) -> integer_to_list(erlang:phash2({B, O}, 100000));
handle(_) -> "?".
