%% Thousands of jobs with large heaps came and went. Sessions that began meanwhile have small heaps, lie
%% among what the jobs have left in all carriers of eheap_alloc, and wait. Cured, a flag gives each larger heap
%% a carrier of its own (+MHsbct), which goes with it.
-module(lab_eheap_fragmentation).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

%% Bytes of a cell of a list.
-define(CELL, 16).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Jobs = lab:int(Context, jobs, 2000, 2600),
    RowsKb = lab:int(Context, rows_kb, 90, 140),
    SessionsPerJob = lab:int(Context, sessions_per_job, 1, 3),
    Fields = lab:int(Context, fields, 10, 30),
    Spike = spike(Jobs, about(RowsKb * ?KB div ?CELL), SessionsPerJob, about(Fields), []),
    #{blocks := Most} = lab:allocated(eheap_alloc),
    end_all(Spike),
    %% What the jobs held is free now; whether it is given back is what this is about.
    lab:wait_until(sick_or_cured, fun() ->
        #{blocks := Blocks, carriers := Carriers} = lab:allocated(eheap_alloc),
        Blocks < Most div 4 andalso case lab:sick(Context) of
            true -> Carriers > Most div 2;
            false -> Carriers < Most div 4
        end
    end),
    #{
        sick => none,
        details => #{
            jobs => Jobs, rows_kb => RowsKb, sessions => Jobs * SessionsPerJob, fields => Fields,
            spike_mb => Most div ?MB
        }
    }.

%% A function that gives from 60 to 140 per cent of a number.
about(Number) -> fun() -> Number * (60 + rand:uniform(80)) div 100 end.

%% All jobs are alive at once, but few of them begin at the same time.
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

%% Waits for what does not come, as most connections do most of the time.
session(Fields) ->
    State = maps:from_list([{Field, {Field, erlang:monotonic_time()}} || Field <- lists:seq(1, Fields)]),
    receive never -> State end.
