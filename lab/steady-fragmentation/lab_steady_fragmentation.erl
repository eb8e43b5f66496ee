%% Waves of documents are allocated and freed, all day. A small part of each is cached for a long time, so the size of the
%% cache is constant, but its entries are in the same carriers as the documents, and each keeps one from becoming empty.
%% Healthy: a flag puts every document into a carrier of its own (+MBsbct), which is freed with it.
-module(lab_steady_fragmentation).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

%% Waves of each source without a pause at the start, so that the lab is ready soon.
-define(WARMUP_WAVES, 4).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    WaveMb = lab:int(Context, wave_mb, 50, 70),
    DocumentKb = lab:int(Context, document_kb, 250, 400),
    EntryBytes = lab:int(Context, entry_bytes, 800, 1800),
    Entries = lab:int(Context, entries, 8000, 12000),
    [CacheName | Sources] = Names = lab:names(Context, processes, lab:int(Context, processes, 4, 5)),
    Periods = [lab:int(Context, {period, N}, 3000, 4500) || N <- lists:seq(1, length(Sources))],
    Cache = lab:start(CacheName, fun() ->
        Table = ets:new(CacheName, []),
        [ets:insert(Table, {Slot, lab:binary(about(EntryBytes))}) || Slot <- lists:seq(0, Entries - 1)],
        cache(Table, Entries, 0)
    end),
    Waves = lab:counter(),
    Wave = fun() -> wave(Cache, WaveMb * ?MB, DocumentKb * ?KB, EntryBytes), lab:count(Waves) end,
    [lab:start(Source, fun() -> source(Wave, PeriodMs) end) || {Source, PeriodMs} <- lists:zip(Sources, Periods)],
    lab:wait_until(waves, fun() -> lab:total(Waves) >= ?WARMUP_WAVES * length(Sources) end),
    %% Between two waves.
    lab:wait_until(sick_or_cured, fun() ->
        #{blocks := Blocks, carriers := Carriers} = lab:allocated(binary_alloc),
        case lab:sick(Context) of
            true -> Carriers > 100 * ?MB andalso Carriers > 3 * Blocks;
            false -> Carriers < 2 * Blocks
        end
    end),
    #{
        sick => none,
        details => #{
            cache => CacheName, pid => Cache, processes => {list, lab:shuffle(Context, order, Names)},
            wave_mb => WaveMb, document_kb => DocumentKb, entry_bytes => EntryBytes, entries => Entries,
            period_ms => {list, Periods}
        }
    }.

source(Wave, PeriodMs) ->
    lists:foreach(fun(_) -> Wave() end, lists:seq(1, ?WARMUP_WAVES)),
    lab:forever(fun() ->
        lab:pause(PeriodMs),
        Wave()
    end).

%% All documents of a wave are alive at once, in processes that exit with it.
wave(Cache, Bytes, DocumentBytes, EntryBytes) ->
    Workers = erlang:system_info(schedulers_online),
    Work = fun() -> work(Cache, Bytes div Workers, DocumentBytes, EntryBytes, []) end,
    Monitors = [monitor(process, lab:start(Work)) || _ <- lists:seq(1, Workers)],
    [receive {'DOWN', Monitor, process, _, _} -> ok end || Monitor <- Monitors].

work(_, Left, _, _, Documents) when Left =< 0 ->
    length(Documents);
work(Cache, Left, DocumentBytes, EntryBytes, Documents) ->
    Document = lab:binary(about(DocumentBytes)),
    Cache ! {entry, binary:copy(binary:part(Document, 0, about(EntryBytes)))},
    work(Cache, Left - byte_size(Document), DocumentBytes, EntryBytes, [Document | Documents]).

%% From 60 to 140 per cent.
about(Bytes) -> Bytes * (60 + rand:uniform(80)) div 100.

%% A new entry replaces the oldest one.
cache(Table, Entries, Next) ->
    receive
        {entry, Entry} ->
            ets:insert(Table, {Next rem Entries, Entry}),
            cache(Table, Entries, Next + 1)
    end.
