-module(turnstile_api).
-export([answer/1]).

answer([<<"may">>, Badge, <<"d", D/binary>>]) ->
    Door = binary_to_integer(D),
    case turnstile_rights:may(Badge, Door) of
        true -> turnstile_door:opened(Door), <<"pass">>;
        false -> <<"no">>
    end.
