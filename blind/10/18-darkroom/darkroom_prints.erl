%% The last pictures: a page about them.
-module(darkroom_prints).
-include_lib("/usr/lib/yaws/include/yaws_api.hrl").
-export([out/1, start/0, add/2]).

start() ->
    spawn(fun() ->
        ets:new(?MODULE, [named_table, public, ordered_set]),
        ets:insert(?MODULE, {number, 0}),
        register(?MODULE, self()),
        receive stop -> ok end
    end).

add(Picture, Sum) ->
    N = ets:update_counter(?MODULE, number, 1),
    ets:insert(?MODULE, {N, byte_size(Picture), Sum, binary:copy(binary:part(Picture, 0, min(2000, byte_size(Picture))))}),
    ets:delete(?MODULE, N - 30),
    N.

out(_) ->
    {content, "text/html", ["<h1>Prints</h1>", [io_lib:format("<p>picture ~w: ~w bytes, ~.16b</p>~n", [N, S, C]) || {N, S, C, _} <- ets:tab2list(?MODULE)]]}.
