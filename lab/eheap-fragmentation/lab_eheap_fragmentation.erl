%% Thousands of jobs with large heaps have ended. Sessions that started meanwhile have small heaps between the freed ones
%% in all carriers of eheap_alloc, and are idle. Healthy: a flag puts each larger heap into a carrier of its own
%% (+MHsbct), which is freed with it.
-module(lab_eheap_fragmentation).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

%% Bytes per list cell.
-define(CELL, 16).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Jobs = lab:int(Context, jobs, 2000, 2600),
    RowsKb = lab:int(Context, rows_kb, 90, 140),
    SessionsPerJob = lab:int(Context, sessions_per_job, 1, 3),
    Fields = lab:int(Context, fields, 10, 30),
    Spike = spike(Jobs, about(RowsKb * ?KB div ?CELL), SessionsPerJob, about(Fields), []),
    #{blocks := PeakBytes} = lab:allocated(eheap_alloc),
    end_all(Spike),
    %% The heaps of the jobs are free now; this lab is about whether their carriers are freed.
    lab:wait_until(sick_or_cured, fun() ->
        #{blocks := Blocks, carriers := Carriers} = lab:allocated(eheap_alloc),
        Blocks < PeakBytes div 4 andalso case lab:sick(Context) of
            true -> Carriers > PeakBytes div 2;
            false -> Carriers < PeakBytes div 4
        end
    end),
    #{
        sick => none,
        details => #{
            jobs => Jobs, rows_kb => RowsKb, sessions => Jobs * SessionsPerJob, fields => Fields,
            spike_mb => PeakBytes div ?MB
        }
    }.

%% Returns a function that draws from 60 to 140 per cent of a number.
about(Number) -> fun() -> Number * (60 + rand:uniform(80)) div 100 end.

%% All jobs are alive at once, but only a few of them start at the same time.
spike(0, _, _, _, Jobs) ->
    Jobs;
spike(Left, Rows, SessionsPerJob, Fields, Jobs) ->
    Starter = self(),
    Begun = [lab:start(fun() -> job(Rows(), Starter) end) || _ <- lists:seq(1, min(Left, 4))],
    [lab:start(fun() -> session(Fields()) end) || _ <- Begun, _ <- lists:seq(1, SessionsPerJob)],
    [receive {has_begun, Job} -> ok end || Job <- Begun],
    spike(Left - length(Begun), Rows, SessionsPerJob, Fields, Begun ++ Jobs).

end_all(Jobs) ->
    Monitors = [monitor(process, Job) || Job <- Jobs],
    [Job ! done || Job <- Jobs],
    [receive {'DOWN', Monitor, process, _, _} -> ok end || Monitor <- Monitors].

job(Rows, Starter) ->
    Work = lists:seq(1, Rows),
    Starter ! {has_begun, self()},
    receive done -> length(Work) end.

%% Waits for a message that never comes, like most connections most of the time.
session(Fields) ->
    State = maps:from_list([{Field, {Field, erlang:monotonic_time()}} || Field <- lists:seq(1, Fields)]),
    receive never -> State end.
