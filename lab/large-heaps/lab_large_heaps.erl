%% Workers with heaps that a job has enlarged, idle since then. A GC runs when a heap is full, and these never fill again.
%% Healthy: a worker hibernates after its job.
-module(lab_large_heaps).

-export([start/1, establish/1]).
%% For hibernate.
-export([wait/1]).

-define(MB, (1024 * 1024)).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 18, 26),
    JobMb = lab:int(Context, job_mb, 14, 18),
    Names = lab:names(Context, workers, Workers),
    Done = lab:counter(),
    Sick = lab:sick(Context),
    %% One after the other: a GC of a large heap temporarily needs the same amount of memory again.
    [
        begin
            lab:start(Name, fun() -> work(Sick, JobMb, Done) end),
            lab:wait_until(job, fun() -> lab:total(Done) >= N end)
        end
     || {N, Name} <- lists:zip(lists:seq(1, Workers), Names)
    ],
    lab:wait_until(sick_or_cured, fun() ->
        case Sick of
            true -> erlang:memory(processes) > Workers * JobMb * ?MB;
            false -> erlang:memory(processes) < Workers * JobMb * ?MB div 10
        end
    end),
    #{
        sick => none,
        details => #{workers => {list, Names}, job_mb => JobMb}
    }.

work(Sick, JobMb, Done) ->
    Result = job(JobMb),
    lab:count(Done),
    case Sick of
        true -> wait(Result);
        false -> erlang:hibernate(?MODULE, wait, [Result])
    end.

%% Needs a large list for a while, and returns a number.
job(JobMb) ->
    %% A list cell and a tuple of three, in words.
    Rows = [{N, N * N, N rem 7} || N <- lists:seq(1, JobMb * ?MB div (8 * 6))],
    lists:foldl(fun({_, Square, Rest}, Sum) -> (Sum + Square * Rest) band 16#ffffff end, 0, Rows).

wait(Result) ->
    receive never -> Result end.
