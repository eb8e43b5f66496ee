%% Workers that go through a long list of jobs on their heaps, and collect their garbage after each batch, as programs do
%% that want to give memory back early. Heaps of that size are collected by dirty CPU schedulers, and these share one instance
%% of each allocator: for a new heap, and to give back the old one, all take one lock, and hold it while segments are mapped
%% and unmapped. Cured, a flag gives each of them an instance of its own.
-module(lab_dirty_collections).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 40, 56),
    %% Two words each: 128 Ki words are the least that go to dirty schedulers.
    Fewest = lab:int(Context, fewest_jobs, 70000, 80000),
    Batch = lab:int(Context, batch, 2500, 3500),
    Names = lab:names(Context, workers, Workers),
    Done = lab:counter(),
    [lab:start(Name, fun() -> work([], 0, Fewest, Batch, Done) end) || Name <- Names],
    lab:wait_until(batches, fun() -> lab:total(Done) > 4 * Workers end),
    #{
        sick => none,
        details => #{
            workers => {list, Names}, fewest_jobs => Fewest, batch => Batch,
            dirty_schedulers => erlang:system_info(dirty_cpu_schedulers), batches_per_s => lab:per_second(Done, 2000)
        }
    }.

%% With fewer jobs left, there is a new list of two to four times as many. So no two heaps are of the same size, and
%% few of the segments that the VM keeps fit.
work(Jobs, Left, Fewest, Batch, Done) when Left >= Fewest + Batch ->
    Others = lists:nthtail(Batch, Jobs),
    true = erlang:garbage_collect(),
    lab:count(Done),
    work(Others, Left - Batch, Fewest, Batch, Done);
work(_, _, Fewest, Batch, Done) ->
    Jobs = 2 * Fewest + rand:uniform(2 * Fewest),
    work(lists:seq(1, Jobs), Jobs, Fewest, Batch, Done).
