%% Requests that each have a process with a heap above the singleblock carrier threshold (sbct, 512 KB), so it gets a
%% segment of its own. They come in bursts of more than the few segments that the segment cache keeps (mcs), so most are
%% mapped and unmapped again. Healthy: a flag makes the cache large enough for a burst.
-module(lab_mseg_cache_thrash).

-export([start/1, establish/1]).

-define(KB, 1024).

%% Bursts of each source without a pause at the start, until the carriers have reached their steady state.
-define(WARMUP_BURSTS, 60).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Burst = lab:int(Context, burst, 20, 26),
    PerS = lab:int(Context, bursts_per_s, 90, 110),
    RowsKb = lab:int(Context, rows_kb, 150, 250),
    HeapKb = lab:int(Context, heap_kb, 650, 1000),
    Sources = lab:names(Context, sources, 2),
    Done = lab:counter(),
    Bursts = fun(Count) -> [burst(Burst, RowsKb, HeapKb, Done) || _ <- lists:seq(1, Count)] end,
    [
        lab:start(Source, fun() ->
            Bursts(?WARMUP_BURSTS),
            lab:at_rate(PerS div length(Sources), Bursts)
        end)
     || Source <- Sources
    ],
    lab:wait_until(requests, fun() -> lab:total(Done) > (?WARMUP_BURSTS * length(Sources) + PerS) * Burst end),
    #{
        sick => none,
        details => #{
            sources => {list, Sources}, burst => Burst, bursts_per_s => PerS, rows_kb => RowsKb, heap_kb => HeapKb,
            requests_per_s => lab:per_second(Done, 1000)
        }
    }.

%% All requests of a burst are alive at once.
burst(Requests, RowsKb, HeapKb, Done) ->
    Options = [link, monitor, {min_heap_size, HeapKb * ?KB div erlang:system_info(wordsize)}],
    Started = [spawn_opt(fun() -> request(RowsKb, Done) end, Options) || _ <- lists:seq(1, Requests)],
    [Pid ! done || {Pid, _} <- Started],
    [receive {'DOWN', Monitor, process, _, _} -> ok end || {_, Monitor} <- Started].

request(RowsKb, Done) ->
    Rows = lists:seq(1, RowsKb * ?KB div 16),
    receive done -> ok end,
    true = length(Rows) > 0,
    lab:count(Done).
