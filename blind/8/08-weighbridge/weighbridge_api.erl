%% "weigh" makes the slip with its picture (real work: some milliseconds)
-module(weighbridge_api).
-export([handle/1]).
handle([<<"weigh">>, V, Kg]) ->
    Net = binary_to_integer(Kg) - weighbridge_ledger:tare(binary_to_integer(V)),
    Picture = << <<(erlang:phash2({V, X}, 256))>> || X <- lists:seq(1, 6000) >>,
    [integer_to_list(Net), $\s, integer_to_list(byte_size(zlib:compress(Picture))), $\s, integer_to_list(erlang:crc32(Picture))];
handle([<<"tare">>, V]) -> integer_to_list(weighbridge_ledger:tare(binary_to_integer(V)));
handle(_) -> "?".
