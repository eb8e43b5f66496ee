%% Who has which book. Must survive a restart.
-module(loans_store).
-export([prepare/0, lend/2, back/1, who/1, count/0]).
-record(loan, {book, reader, since, history}).

prepare() ->
    stopped = mnesia:stop(),
    case mnesia:create_schema([node()]) of ok -> ok; {error, {_, {already_exists, _}}} -> ok end,
    ok = mnesia:start(),
    {atomic, ok} = mnesia:create_table(loan, [{disc_copies, [node()]}, {attributes, record_info(fields, loan)}]),
    {atomic, ok} = mnesia:create_table(branch, [{ram_copies, [node()]}]),
    ok = mnesia:wait_for_tables([loan, branch], 20000),
    lists:foreach(fun(I) -> {atomic, ok} = mnesia:transaction(fun() ->
        [mnesia:write(#loan{book = I * 1000 + J, reader = J, since = 0, history = <<0:1200>>}) || J <- lists:seq(0, 999)], ok end)
    end, lists:seq(0, 29)),
    ok.

lend(Book, Reader) ->
    {atomic, R} = mnesia:transaction(fun() ->
        case mnesia:wread({loan, Book}) of
            [#loan{reader = Reader}] -> again;
            [L] -> mnesia:write(L#loan{reader = Reader, since = erlang:system_time(second)});
            [] -> mnesia:write(#loan{book = Book, reader = Reader, since = erlang:system_time(second), history = <<0:1200>>})
        end
    end),
    R.

back(Book) ->
    {atomic, R} = mnesia:transaction(fun() ->
        case mnesia:wread({loan, Book}) of
            [L] -> mnesia:write(L#loan{reader = none, since = erlang:system_time(second)});
            [] -> unknown
        end
    end),
    R.

who(Book) ->
    case mnesia:dirty_read(loan, Book) of
        [#loan{reader = R}] -> R;
        [] -> none
    end.

count() -> mnesia:table_info(loan, size).
