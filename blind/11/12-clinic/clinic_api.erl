-module(clinic_api).
-export([answer/1]).

answer([<<"appointment">>, P]) ->
    case clinic_appointments:next(P) of
        {Day, Doctor} -> io_lib:format("day ~b doctor ~b", [Day, Doctor]);
        none -> "none"
    end.
