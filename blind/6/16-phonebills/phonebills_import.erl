-module(phonebills_import).
-export([start_link/0, init/0]).
start_link() -> {ok, proc_lib:spawn_link(?MODULE, init, [])}.
init() -> register(?MODULE, self()), loop().
loop() ->
    case phonebills_spool:next() of
        none -> timer:sleep(200);
        {file, Name} ->
            {ok, F} = file:open(Name, [read, binary, {encoding, utf8}]),
            N = lines(F, 0),
            ok = file:close(F),
            phonebills_totals:imported(N),
            ok = file:delete(Name)
    end,
    loop().

lines(F, N) ->
    case io:get_line(F, "") of
        eof -> N;
        Line ->
            phonebills_record:take(Line),
            lines(F, N + 1)
    end.
