%% Requests that each have a process, which builds a result of several hundred kilobytes and exits. The process starts
%% with the minimum heap size, and each time the heap is full, the GC copies everything built so far to a slightly larger
%% one. Healthy: the initial heap is large enough.
-module(lab_small_first_heaps).

-export([start/1, establish/1, request/2]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Rows = lab:int(Context, rows, 1600, 2200),
    PerS = lab:demand(Context, per_s, 1400, 1800),
    Sources = lab:names(Context, sources, lab:int(Context, sources, 2, 4)),
    Done = lab:counter(),
    Options = [{min_heap_size, 20 * Rows} || not lab:sick(Context)],
    [
        lab:start(Source, fun() ->
            lab:at_rate(PerS div length(Sources), fun(Due) ->
                [proc_lib:spawn_opt(?MODULE, request, [Rows, Done], Options) || _ <- lists:seq(1, Due)]
            end)
        end)
     || Source <- Sources
    ],
    lab:wait_until(requests, fun() -> lab:total(Done) > PerS end),
    #{
        sick => none,
        details => #{
            sources => {list, Sources}, rows => Rows, per_s => PerS, requests_per_s => lab:per_second(Done, 2000)
        }
    }.

%% Nothing of the result is garbage until the end.
request(Rows, Done) ->
    Result = [{Row, Row * Row, [Row, Rows], {row, Row}} || Row <- lists:seq(1, Rows)],
    Rows = length(lists:reverse(Result)),
    lab:count(Done).
