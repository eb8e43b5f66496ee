-module(library_store).
-export([tables/0, lend/2, give_back/1, copy/1, reader/1, loans/1]).
-record(loan, {copy, reader, since, until, branch}).
-record(copy, {id, title, shelf}).
-record(reader, {id, name, branch}).

tables() ->
    {atomic, ok} = mnesia:create_table(loan, [{ram_copies, [node()]}, {attributes, record_info(fields, loan)}]),
    {atomic, ok} = mnesia:create_table(copy, [{ram_copies, [node()]}, {attributes, record_info(fields, copy)}]),
    {atomic, ok} = mnesia:create_table(reader, [{ram_copies, [node()]}, {attributes, record_info(fields, reader)}, {index, [#reader.branch]}]),
    [mnesia:dirty_write(#copy{id = I, title = I div 3, shelf = I rem 512}) || I <- lists:seq(1, 60000)],
    [mnesia:dirty_write(#reader{id = I, name = <<"reader ", (integer_to_binary(I))/binary>>, branch = I rem 40}) || I <- lists:seq(1, 30000)],
    [mnesia:dirty_write(#loan{copy = I, reader = rand:uniform(30000), since = 1000, until = 3000, branch = I rem 40}) || I <- lists:seq(1, 180000)],
    ok.

copy(Id) -> mnesia:dirty_read(copy, Id).
reader(Id) -> mnesia:dirty_read(reader, Id).

lend(Copy, Reader) ->
    {atomic, R} = mnesia:transaction(fun() ->
        case mnesia:read(loan, Copy, write) of
            [] -> mnesia:write(#loan{copy = Copy, reader = Reader, since = erlang:system_time(second), until = 3000, branch = Reader rem 40}), lent;
            [_] -> away
        end
    end),
    R.

give_back(Copy) ->
    {atomic, R} = mnesia:transaction(fun() -> mnesia:delete({loan, Copy}) end),
    R.

%% what a reader has at home
loans(Reader) ->
    mnesia:dirty_match_object(#loan{copy = '_', reader = Reader, since = '_', until = '_', branch = '_'}).
