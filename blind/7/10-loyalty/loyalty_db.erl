%% The one place from where Mnesia is used: answers are {ok, Result} or {error, Why}, and nothing crashes.
-module(loyalty_db).
-export([run/1, read/2, write/1]).
run(Fun) ->
    {atomic, R} = mnesia:transaction(
        fun() ->
            try {ok, Fun()}
            catch
                throw:Why -> {error, Why};
                _:Why -> {error, Why}
            end
        end),
    R.
read(Tab, Key) ->
    case mnesia:read(Tab, Key, read) of
        [R] -> R;
        [] -> throw({unknown, Tab, Key})
    end.
write(R) -> mnesia:write(R).
