%% A super carrier that is smaller than the node's constant demand. It is meant to map memory once; but what does not fit
%% comes from malloc, which maps and unmaps each large block. Healthy: everything fits.
-module(lab_super_carrier_full).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    BaseMb = lab:int(Context, base_mb, 110, 140),
    BufferKb = lab:int(Context, buffer_kb, 700, 1000),
    PerS = lab:int(Context, per_s, 180, 260),
    LifeMs = lab:int(Context, life_ms, 150, 300),
    [Owner | Sources] = lab:names(Context, processes, lab:int(Context, processes, 3, 5)),
    Table = lab:name(Context, table),
    Filled = lab:counter(),
    lab:start(Owner, fun() ->
        ets:new(Table, [named_table]),
        fill(Table, BaseMb * ?MB, 1),
        lab:count(Filled),
        receive never -> ok end
    end),
    lab:wait_until(filled, fun() -> lab:total(Filled) =:= 1 end),
    Done = lab:counter(),
    Request = fun() -> request(about(BufferKb * ?KB), about(LifeMs), Done) end,
    %% Twice the number of concurrent requests, so that the super carrier has reached its maximum use.
    First = 2 * PerS * LifeMs div 1000,
    [lab:start(Request) || _ <- lists:seq(1, First)],
    lab:wait_until(first, fun() -> lab:total(Done) =:= First end),
    [
        lab:start(Source, fun() ->
            lab:at_rate(PerS div length(Sources), fun(Due) -> [lab:start(Request) || _ <- lists:seq(1, Due)] end)
        end)
     || Source <- Sources
    ],
    lab:wait_until(requests, fun() -> lab:total(Done) > First + PerS end),
    lab:wait_until(sick_or_cured, fun() -> lab:sick(Context) =:= (from_malloc() > (BaseMb - 96) * ?MB) end),
    #{
        sick => none,
        details => #{
            table => Table, owner => Owner, sources => {list, Sources}, base_mb => BaseMb, buffer_kb => BufferKb,
            per_s => PerS, life_ms => LifeMs
        }
    }.

fill(Table, Bytes, Next) ->
    [ets:insert(Table, {Key, lists:seq(Key, Key + 50)}) || Key <- lists:seq(Next, Next + 999)],
    ets:info(Table, memory) * erlang:system_info(wordsize) < Bytes andalso fill(Table, Bytes, Next + 1000).

%% A process with a buffer, for a while.
request(Bytes, LifeMs, Done) ->
    Buffer = lab:binary(Bytes),
    lab:pause(LifeMs),
    true = byte_size(Buffer) >= Bytes,
    lab:count(Done).

%% From 60 to 140 per cent.
about(Number) -> Number * (60 + rand:uniform(80)) div 100.

%% Bytes in carriers from malloc.
from_malloc() ->
    lists:sum([
        Bytes
     || Allocator <- [ets_alloc, binary_alloc],
        {instance, _, Info} <- erlang:system_info({allocator, Allocator}),
        {Name, Kind} <- Info, lists:member(Name, [mbcs, sbcs]),
        {sys_alloc_carriers_size, Bytes} <- Kind
    ]).
