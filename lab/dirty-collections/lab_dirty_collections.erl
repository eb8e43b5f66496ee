%% Workers that process a long list of jobs on their heaps, and run a GC after each batch, as programs do to free memory
%% early. Dirty CPU schedulers execute GCs of heaps of that size, and share one instance of each allocator: allocating the
%% new heap and freeing the old one takes one lock, which is held while segments are mapped and unmapped. Healthy: a flag
%% gives each dirty scheduler its own instance.
-module(lab_dirty_collections).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 40, 56),
    %% A job has two words, and dirty schedulers execute GCs of heaps from 128 Ki words on.
    MinJobs = lab:int(Context, fewest_jobs, 70000, 80000),
    Batch = lab:int(Context, batch, 2500, 3500),
    Names = lab:names(Context, workers, Workers),
    Done = lab:counter(),
    [lab:start(Name, fun() -> work([], 0, MinJobs, Batch, Done) end) || Name <- Names],
    lab:wait_until(batches, fun() -> lab:total(Done) > 4 * Workers end),
    #{
        sick => none,
        details => #{
            workers => {list, Names}, fewest_jobs => MinJobs, batch => Batch,
            dirty_schedulers => erlang:system_info(dirty_cpu_schedulers), batches_per_s => lab:per_second(Done, 2000)
        }
    }.

%% With fewer jobs left, there is a new list of two to four times as many. So no two heaps have the same size, and few of
%% the cached segments fit.
work(Jobs, Left, MinJobs, Batch, Done) when Left >= MinJobs + Batch ->
    Others = lists:nthtail(Batch, Jobs),
    true = erlang:garbage_collect(),
    lab:count(Done),
    work(Others, Left - Batch, MinJobs, Batch, Done);
work(_, _, MinJobs, Batch, Done) ->
    Jobs = 2 * MinJobs + rand:uniform(2 * MinJobs),
    work(lists:seq(1, Jobs), Jobs, MinJobs, Batch, Done).
