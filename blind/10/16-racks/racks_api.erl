-module(racks_api).
-export([answer/1]).

answer([Sensor, Host]) ->
    case racks_sessions:read(Host, Sensor) of
        none -> <<"unknown">>;
        V -> [<<"value ">>, integer_to_binary(V)]
    end.
