-module(phonebills_totals).
-export([new/0, add/2, imported/1]).
new() -> ets:new(?MODULE, [named_table, public, {write_concurrency, true}]).
add(From, Seconds) -> ets:update_counter(?MODULE, From, Seconds, {From, 0}).
imported(N) -> ets:update_counter(?MODULE, lines, N, {lines, 0}).
