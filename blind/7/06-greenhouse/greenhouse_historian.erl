%% Writes every value of every house into the history, packed.
-module(greenhouse_historian).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    ok = greenhouse_bus:subscribe(all),
    {ok, F} = file:open(filename:join(os:getenv("WORK"), "history"), [raw, binary, append]),
    Z = zlib:open(),
    {ok, #{file => F, z => Z, written => 0, series => #{}}}.
handle_call(written, _, #{written := W} = S) -> {reply, W, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info({value, [H, K], V}, #{file := F, z := Z, written := W, series := Series} = S) ->
    Last = lists:sublist([maps:get(value, V) | maps:get({H, K}, Series, [])], 600),
    Sorted = list_to_tuple(lists:sort(Last)),
    Ps = [{P, element(1 + (size(Sorted) - 1) * P div 100, Sorted)} || P <- lists:seq(1, 99)],
    Text = io_lib:format("~s;~s;~s;~0p~n", [calendar:system_time_to_rfc3339(maps:get(at, V), [{unit, millisecond}]), H, K, maps:to_list(V)]),
    ok = zlib:deflateInit(Z, 9),
    Row = zlib:deflate(Z, [Text, [io_lib:format("~.3f,", [X]) || X <- maps:get(last, V)], [io_lib:format("p~b=~.2f;", [P, X]) || {P, X} <- Ps]], finish),
    ok = zlib:deflateEnd(Z),
    ok = file:write(F, Row),
    {noreply, S#{written := W + 1, series := Series#{{H, K} => Last}}}.
