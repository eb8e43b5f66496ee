%% the archive's node: keeps the sums of the blocks
-module(archive).
-export([start/0, init/0]).
start() -> spawn(?MODULE, init, []).
init() -> register(quotes_archive, self()), loop(0, 0).
loop(N, Bytes) ->
    receive {block, _, _, _, Raw} -> loop(N + 1, Bytes + byte_size(Raw)) end.
