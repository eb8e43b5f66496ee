%% `collect': garbage collections on request. This is the only item that changes the node's own processes.

%% Maximum number of processes chosen, and of the largest ones among them.
-define(MAX_CHOSEN, 100000).
-define(MAX_LARGEST, 250).
%% Range of the hash by which processes are chosen at random.
-define(CHANCES, 134217728).
%% A block freed by another scheduler than its owner counts as used until the owner has handled it.
-define(FREED_MS, 100).
%% Time limit for one garbage collection.
-define(COLLECTED_MS, 1000).

%% sums: words before and after, of heaps and of binaries. by_chance, for randomly chosen processes: their number, the heap that each
%% freed, in whole KiB, sum and sum of squares, and the same of binaries.
-record(collecting, {until, batch, pause_ms, latency_ms, queue_limit, heap_words, word, top,
                     collected = 0, gone = 0, no_answer = 0, large = 0, sums = {0, 0, 0, 0}, by_chance = none, ns = 0,
                     longest_ns = 0, late_ms = 0, queue = 0}).

%% Collects one process after the other, with pauses between batches. This runs at priority normal: a process is garbage-collected at the
%% priority of the requesting process, and so the collector measures how long other processes wait for a scheduler.
collections(Top, Params, State) ->
    Until = until(collect, Params),
    {How, Total, Rest, Largest, ByChance, State1} =
        case Params of
            #{pids := Names} -> {named, length(Names), 0, local_pids(Names) -- State#state.own, [], State};
            _ -> chosen(bounded(share, Params, 1, 1000, 1000), bounded(max_processes, Params, 1, 1000, ?MAX_CHOSEN), Until, State)
        end,
    Word = erlang:system_info(wordsize),
    Begun = #collecting{until = Until, word = Word, top = top(Top),
                        batch = bounded(batch, Params, 1, 10, 1000), pause_ms = bounded(pause_ms, Params, 1, 10, 1000),
                        latency_ms = bounded(latency_limit_ms, Params, 1, 50, 60000),
                        queue_limit = bounded(queue_limit, Params, 1, 10 * erlang:system_info(schedulers_online), 1000000),
                        heap_words = bounded(max_heap_bytes, Params, 1, 268435456, 1 bsl 50) div Word},
    Before = memory_now(),
    process_flag(priority, normal),
    {Stopped, Done} = try collect_both(Largest, ByChance, pause(Begun)) after process_flag(priority, high) end,
    receive after ?FREED_MS -> ok end,
    After = memory_now(),
    #collecting{sums = {Heap, HeapAfter, Binary, BinaryAfter}} = Done,
    {Count, HeapKib, HeapSquares, BinaryKib, BinarySquares} =
        case Done#collecting.by_chance of none -> {0, 0, 0, 0, 0}; Sums -> Sums end,
    Rows = [{Pid, Row} || {_, {Pid, Row}} <- top_list(Done#collecting.top)],
    {#{how => How, processes => Total, largest => length(Largest), chosen => length(Largest) + length(ByChance),
       rest_bytes => Rest * Word,
       collected => Done#collecting.collected, gone => Done#collecting.gone,
       no_answer => Done#collecting.no_answer, large => Done#collecting.large,
       heap_before => Heap * Word, heap_after => HeapAfter * Word,
       binary_before => Binary * Word, binary_after => BinaryAfter * Word,
       by_chance => #{collected => Count, heap_kib => HeapKib, heap_kib_squares => HeapSquares,
                      binary_kib => BinaryKib, binary_kib_squares => BinarySquares},
       memory_before => Before, memory_after => After,
       us => Done#collecting.ns div 1000, longest_us => Done#collecting.longest_ns div 1000,
       late_ms => Done#collecting.late_ms, queue => Done#collecting.queue, stopped => Stopped,
       rows => named_rows(Rows, State1)}, State1}.

%% Chooses a share of all processes (permille), but at most Max: a quarter of them are the largest (by heap and binaries), which would
%% make a purely random sample imprecise; the others are random and in random order, so that those collected before the deadline are
%% a fair sample. No other process is larger than the smallest of the largest ones.
chosen(Share, Max, Until, #state{own = Own} = State) ->
    Seed = erlang:unique_integer(),
    Count = max(1, erlang:system_info(process_count)),
    Wanted = min(Max, (Count * Share + 999) div 1000),
    Enough = min(?CHANCES, ?CHANCES * (Wanted + Wanted div 4 + 20) div Count),
    Rank = fun(Pid, {Words, Vheap}, Top) -> top_add(Words + Vheap, Pid, Top);
              (_, _, Top) -> Top
           end,
    Chunk = fun(All, {Top, Found}) ->
                Pids = [Pid || Pid <- All, not lists:member(Pid, Own)],
                {add_all(Pids, heaps_of(Pids), Rank, Top),
                 [{Hash, Pid} || Pid <- Pids, Hash <- [erlang:phash2({Pid, Seed}, ?CHANCES)], Hash < Enough] ++ Found}
            end,
    {_, Scanned, {{Left, Lowest, _} = Top, Found}, Next} =
        each_process(Chunk, {top(max(1, min(?MAX_LARGEST, Wanted div 4))), []}, (now_ns() + Until) div 2, State),
    Largest = [Pid || {_, Pid} <- top_list(Top)],
    Known = maps:from_list([{Pid, []} || Pid <- Largest]),
    Others = [Pid || {_, Pid} <- lists:sort(Found), not maps:is_key(Pid, Known)],
    Rest = case Left of 0 -> Lowest; _ -> 0 end,
    {sample, max(0, Scanned - length(Own)), Rest, Largest, lists:sublist(Others, max(0, Wanted - length(Largest))), Next}.

%% In bytes; empty if an allocator is disabled.
memory_now() ->
    try maps:from_list(erlang:memory([total, processes, binary])) catch error:notsup -> #{} end.

collect_both(Largest, ByChance, Collecting) ->
    case collect_all(Largest, Collecting) of
        {done, Done} when ByChance =/= [] -> collect_all(ByChance, Done#collecting{by_chance = {0, 0, 0, 0, 0}});
        Ended -> Ended
    end.

collect_all([], Collecting) -> {done, Collecting};
collect_all(Pids, #collecting{batch = Batch, until = Until, latency_ms = Latency, queue_limit = Limit} = Collecting) ->
    case Collecting of
        #collecting{late_ms = Late} when Late > Latency -> {latency, Collecting};
        #collecting{queue = Queue} when Queue > Limit -> {queue, Collecting};
        _ ->
            case now_ns() >= Until of
                true -> {limit, Collecting};
                false ->
                    {Now, _, Later} = take(Batch, Pids, Pids),
                    Begin = now_ns(),
                    Done = lists:foldl(fun collect_one/2, Collecting, Now),
                    collect_all(Later, pause(Done#collecting{longest_ns = max(Done#collecting.longest_ns, now_ns() - Begin)}))
            end
    end.

%% The delay of its end is the time for which other processes wait for a scheduler; half a millisecond is ignored.
pause(#collecting{pause_ms = Pause, late_ms = Late, queue = Queue} = Collecting) ->
    Begin = now_ns(),
    receive after Pause -> ok end,
    Ms = (now_ns() - Begin - 500000) div 1000000 - Pause,
    Collecting#collecting{late_ms = max(Late, Ms), queue = max(Queue, erlang:statistics(total_run_queue_lengths))}.

collect_one(Pid, #collecting{until = Until} = Collecting) ->
    case now_ns() >= Until of
        %% An asynchronous request would still be executed.
        true -> Collecting;
        false -> collect_one(Pid, heaps_of([Pid]), Collecting)
    end.

collect_one(Pid, Heaps, #collecting{until = Until, heap_words = Max} = Collecting) ->
    case Heaps of
        [{Words, _}] when Words > Max -> Collecting#collecting{large = Collecting#collecting.large + 1};
        [{_, _} = Before] ->
            Ref = make_ref(),
            Begin = now_ns(),
            erlang:garbage_collect(Pid, [{async, Ref}]),
            receive
                {garbage_collect, Ref, true} -> collected(Pid, Before, heaps_of([Pid]), now_ns() - Begin, Collecting);
                {garbage_collect, Ref, false} -> Collecting#collecting{gone = Collecting#collecting.gone + 1}
            after min(?COLLECTED_MS, ms_until(Until)) ->
                Collecting#collecting{no_answer = Collecting#collecting.no_answer + 1}
            end;
        [undefined] -> Collecting#collecting{gone = Collecting#collecting.gone + 1};
        [hung] -> Collecting#collecting{no_answer = Collecting#collecting.no_answer + 1}
    end.

collected(Pid, {Words, Vheap}, [{WordsAfter, VheapAfter}], Ns, #collecting{word = Word, sums = {A, B, C, D}} = Collecting) ->
    Freed = (Words - WordsAfter + Vheap - VheapAfter) * Word,
    Row = #{heap_before => Words * Word, heap_after => WordsAfter * Word,
            binary_before => Vheap * Word, binary_after => VheapAfter * Word, us => Ns div 1000},
    Top = case Freed > 0 of true -> top_add(Freed, {Pid, Row}, Collecting#collecting.top); false -> Collecting#collecting.top end,
    ByChance =
        case Collecting#collecting.by_chance of
            none -> none;
            {Count, HeapKib, HeapSquares, BinaryKib, BinarySquares} ->
                Heap = max(0, Words - WordsAfter) * Word div 1024,
                Binary = max(0, Vheap - VheapAfter) * Word div 1024,
                {Count + 1, HeapKib + Heap, HeapSquares + Heap * Heap, BinaryKib + Binary, BinarySquares + Binary * Binary}
        end,
    Collecting#collecting{collected = Collecting#collecting.collected + 1, ns = Collecting#collecting.ns + Ns, top = Top,
                          sums = {A + Words, B + WordsAfter, C + Vheap, D + VheapAfter}, by_chance = ByChance};
collected(_, _, _, _, Collecting) ->
    Collecting#collecting{gone = Collecting#collecting.gone + 1}.
