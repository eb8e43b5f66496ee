%% Imports that build tens of thousands of small binaries, and free them all together. Their carriers exceed the segment
%% cache, so most are unmapped, and mapped again for the next import. Healthy: a super carrier keeps the memory.
-module(lab_mmap_churn).

-export([start/1, establish/1]).

-define(KB, 1024).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Mb = lab:int(Context, import_mb, 150, 200),
    Kb = lab:int(Context, row_kb, 3, 8),
    PauseMs = lab:int(Context, pause_ms, 300, 500),
    [Importer | Others] = Names = lab:names(Context, processes, lab:int(Context, processes, 3, 5)),
    Done = lab:counter(),
    lab:start(Importer, fun() -> lab:forever(fun() -> import(Mb * ?KB div Kb, Kb, Done), lab:pause(PauseMs) end) end),
    [lab:start(Other, fun() -> lab:forever(fun() -> lab:pause(1000) end) end) || Other <- Others],
    lab:wait_until(imports, fun() -> lab:total(Done) >= 3 end),
    #{
        sick => none,
        details => #{
            importer => Importer, processes => {list, lab:shuffle(Context, order, Names)}, import_mb => Mb, row_kb => Kb,
            pause_ms => PauseMs
        }
    }.

%% All rows are alive until the end.
import(Rows, Kb, Done) ->
    {_, Monitor} = spawn_opt(
        fun() ->
            Imported = [lab:binary(Kb * ?KB) || _ <- lists:seq(1, Rows)],
            Rows = length(Imported),
            lab:count(Done)
        end,
        [link, monitor]
    ),
    receive {'DOWN', Monitor, process, _, _} -> ok end.
