%% A job for comparisons: processes write to one ETS table. An environment variable selects the table's options, so that two variants can be
%% compared.
-module(table).

-export([start/0]).

-define(PROCESSES, 8).
-define(WRITES, 1200000).

start() ->
    Options =
        case os:getenv("TABLE_WRITE_CONCURRENCY") of
            false -> [];
            Value -> [{write_concurrency, list_to_atom(Value)}]
        end,
    Table = ets:new(hot, [public, set | Options]),
    Writers = [spawn_monitor(fun() -> write(Table, N * ?WRITES, ?WRITES) end) || N <- lists:seq(1, ?PROCESSES)],
    [receive {'DOWN', Monitor, process, _, normal} -> ok end || {_, Monitor} <- Writers],
    halt(0).

write(_Table, _Key, 0) -> ok;
write(Table, Key, Left) ->
    ets:insert(Table, {erlang:phash2(Key, 10000), Left}),
    write(Table, Key + 1, Left - 1).
