%% JSON, small and without dependencies.
-module(purchases_json).
-export([decode/1]).
decode(Bin) ->
    {V, R} = value(ws(Bin)),
    <<>> = ws(R),
    V.
ws(<<C, R/binary>>) when C =:= 32; C =:= 10; C =:= 13; C =:= 9 -> ws(R);
ws(B) -> B.
value(<<${, R/binary>>) -> object(ws(R), #{});
value(<<$[, R/binary>>) -> array(ws(R), []);
value(<<$", R/binary>>) -> string(R, []);
value(<<"true", R/binary>>) -> {true, R};
value(<<"false", R/binary>>) -> {false, R};
value(<<"null", R/binary>>) -> {null, R};
value(B) -> number(B, []).
object(<<$}, R/binary>>, M) -> {M, R};
object(<<$,, R/binary>>, M) -> object(ws(R), M);
object(<<$", R/binary>>, M) ->
    {K, R1} = string(R, []),
    <<$:, R2/binary>> = ws(R1),
    {V, R3} = value(ws(R2)),
    object(ws(R3), M#{K => V}).
array(<<$], R/binary>>, Acc) -> {lists:reverse(Acc), R};
array(<<$,, R/binary>>, Acc) -> array(ws(R), Acc);
array(B, Acc) -> {V, R} = value(B), array(ws(R), [V | Acc]).
string(<<$", R/binary>>, Acc) -> {iolist_to_binary(lists:reverse(Acc)), R};
string(<<$\\, $u, H:4/binary, R/binary>>, Acc) -> string(R, [<<(binary_to_integer(H, 16))/utf8>> | Acc]);
string(<<$\\, C, R/binary>>, Acc) -> string(R, [escaped(C) | Acc]);
string(<<C/utf8, R/binary>>, Acc) -> string(R, [<<C/utf8>> | Acc]).
escaped($n) -> <<10>>;
escaped($r) -> <<13>>;
escaped($t) -> <<9>>;
escaped($b) -> <<8>>;
escaped($f) -> <<12>>;
escaped(C) -> <<C>>.
number(<<C, R/binary>>, Acc) when C >= $0, C =< $9; C =:= $-; C =:= $+; C =:= $.; C =:= $e; C =:= $E -> number(R, [C | Acc]);
number(R, Acc) ->
    S = lists:reverse(Acc),
    {case string:to_integer(S) of {I, []} -> I; _ -> list_to_float(S) end, R}.
