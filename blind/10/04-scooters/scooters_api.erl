-module(scooters_api).
-export([answer/1]).

answer([<<"unlock">>, Scooter]) -> atom_to_list(scooters_dispatch:unlock(binary_to_integer(Scooter)));
answer([<<"count">>]) ->
    {N, Cents} = scooters_billing:sum(),
    io_lib:format("sum ~w ~w", [N, Cents]).
