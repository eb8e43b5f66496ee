%% One desk or self-service terminal.
-module(library_desk).
-export([serve/1]).
serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Line} ->
            gen_tcp:send(S, [answer(string:lexemes(string:trim(Line), " ")), "\n"]),
            serve(S);
        {error, _} -> ok
    end.
answer([<<"card">>, R]) ->
    Reader = binary_to_integer(R),
    [_] = library_store:reader(Reader),
    Loans = library_store:loans(Reader),
    io_lib:format("~b", [length(Loans)]);
answer([<<"lend">>, C, R]) -> atom_to_list(library_store:lend(binary_to_integer(C), binary_to_integer(R)));
answer([<<"back">>, C]) -> atom_to_list(library_store:give_back(binary_to_integer(C)));
answer([<<"copy">>, C]) -> io_lib:format("~0p", [library_store:copy(binary_to_integer(C))]).
