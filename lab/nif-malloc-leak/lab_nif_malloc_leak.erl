%% A native library that works in buffers from malloc and does not free them. The VM does not count them, so its own
%% numbers stay small while the OS process grows. Healthy: the buffers are freed.
-module(lab_nif_malloc_leak).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

%% The leak stops here.
-define(MAX_MB, 600).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    ok = load(),
    LostMb = lab:int(Context, lost_mb, 250, 380),
    %% Below and above 128 KiB, from which on malloc uses a mapping per buffer.
    SmallBytes = lab:int(Context, small_bytes, 2000, 30000),
    LargeBytes = lab:int(Context, large_kb, 250, 700) * ?KB,
    LargePct = lab:int(Context, large_pct, 30, 70),
    KbPerS = lab:int(Context, kb_per_s, 600, 1500),
    Names = lab:names(Context, workers, lab:int(Context, workers, 3, 6)),
    Free = case lab:sick(Context) of true -> 0; false -> 1 end,
    Used = counters:new(1, [write_concurrency]),
    %% A large buffer, or as many bytes in small ones.
    Job = fun() ->
        {Count, Bytes} =
            case rand:uniform(100) =< LargePct of
                true -> {1, about(LargeBytes)};
                false -> {LargeBytes div SmallBytes, about(SmallBytes)}
            end,
        [true = work(Bytes, Free) || _ <- lists:seq(1, Count)],
        counters:add(Used, 1, Count * Bytes)
    end,
    Begun = lab:counter(),
    [
        lab:start(Name, fun() ->
            jobs(Job, Used, LostMb * ?MB),
            lab:count(Begun),
            %% The number of jobs of all workers in a thousand seconds.
            at_rate_of_thousand(KbPerS * ?KB * 1000 div (LargeBytes * length(Names)), fun() ->
                Free =:= 0 andalso counters:get(Used, 1) > ?MAX_MB * ?MB orelse Job()
            end)
        end)
     || Name <- Names
    ],
    lab:wait_until(begun, fun() -> lab:total(Begun) =:= length(Names) end),
    #{
        sick => none,
        details => #{
            workers => {list, Names}, lost_mb => LostMb, small_bytes => SmallBytes, large_kb => LargeBytes div ?KB,
            large_pct => LargePct, kb_per_s => KbPerS
        }
    }.

jobs(Job, Used, Bytes) ->
    Job(),
    counters:get(Used, 1) < Bytes andalso jobs(Job, Used, Bytes).

at_rate_of_thousand(PerThousandS, Fun) ->
    lab:pause(1000 * 1000 div PerThousandS),
    Fun(),
    at_rate_of_thousand(PerThousandS, Fun).

%% From 60 to 140 per cent.
about(Bytes) -> Bytes * (60 + rand:uniform(80)) div 100.

%% The library is in the directory of this module.
load() -> erlang:load_nif(filename:rootname(code:which(?MODULE)), none).

work(_, _) -> erlang:nif_error(not_loaded).
