%% A cache and some sessions use most of the memory limit of the node's control group, and keep working. Healthy: the
%% limit is twice as high.
-module(lab_memory_near_limit).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    %% Of the limit when sick, 400 MB.
    ResidentMb = lab:int(Context, resident_mb, 348, 364),
    EntryBytes = lab:int(Context, entry_bytes, 3000, 6000),
    PerS = lab:int(Context, per_s, 300, 900),
    [Table | Servers] = lab:names(Context, names, 4),
    ets:new(Table, [named_table, public, {write_concurrency, true}]),
    Entries = fill(Table, EntryBytes, ResidentMb * 1000000, 0),
    Read = lab:counter(),
    [
        lab:start(Server, fun() ->
            lab:at_rate(PerS, fun(Due) ->
                [begin
                     Key = rand:uniform(Entries),
                     ets:insert(Table, {Key, entry(EntryBytes)}),
                     lab:count(Read)
                 end || _ <- lists:seq(1, Due)]
            end)
        end)
     || Server <- Servers
    ],
    lab:wait_until(read, fun() -> lab:total(Read) > PerS end),
    #{
        sick => none,
        details => #{
            resident_mb => ResidentMb, entries => Entries, entry_bytes => EntryBytes, per_s => PerS,
            cache => Table, servers => {list, Servers}
        }
    }.

%% Fills until this much memory is resident.
fill(Table, EntryBytes, Bytes, Entries) ->
    case resident() >= Bytes of
        true ->
            Entries;
        false ->
            More = Entries + 500,
            [ets:insert(Table, {Key, entry(EntryBytes)}) || Key <- lists:seq(Entries + 1, More)],
            fill(Table, EntryBytes, Bytes, More)
    end.

%% A list, which is stored in the table itself.
entry(Bytes) -> lists:duplicate(Bytes div 16, 0).

resident() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    [_, Rest] = binary:split(Status, <<"VmRSS:">>),
    [Line | _] = binary:split(Rest, <<" kB">>),
    1024 * binary_to_integer(string:trim(Line)).
