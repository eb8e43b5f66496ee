%% `processes': the processes with the largest heaps, most binaries, most reductions and longest queues, with their details.

%% process_info(P, memory) walks P's links, monitors and messages, during which P does not run: 0.1 us for each monitor (0.25 us
%% if there are a million of them), 0.02 us for each message. It is not read if the node has more links and monitors than this, or
%% the process more than MAX_WALKED_MESSAGES messages.
-define(MAX_WALKED_LINKS, 300000).
%% Up to this many processes, garbage_collection_info of all is read in each round: 1 us each.
-define(FEW_PROCESSES, 10000).
%% Minimum size of a monitor (OTP 23) and of either side of a link (OTP 27), in bytes.
-define(MONITOR_BYTES, 120).
-define(LINK_BYTES, 40).

%% The first round visits all processes; after it, a part is a third of the processes, and at least HEAPS_AT_ONCE. On a quiet node it
%% is a sixth, at least half of HEAPS_AT_ONCE, and at most QUIET_HEAPS. The largest processes are read in each part, and busy ones
%% are known from `procs'; others that have grown are found within half a minute, or some minutes on a quiet node.
-define(HEAPS_AT_ONCE, 2048).
-define(HEAP_PARTS, 3).
-define(QUIET_HEAPS, 8192).

-record(heaps, {largest, binaries, vheap = 0}).

%% process_info(P, memory) makes each process run to answer, so a scan would wake them all; heap_size (the young heap) and
%% garbage_collection_info are read from outside, but the latter takes 1 us. So it is read of processes with a large young
%% heap, of a quarter of the others (another quarter each round), and of the largest ones of earlier parts; of all, if there are few.
processes(Top, #state{procs = #procs{busy = Busy, queued = Queued} = Procs, large = Large, own = Own} = State) ->
    #state{heaps = #round{number = Phase}, features = Features} = State,
    AreFew = erlang:system_info(process_count) =< ?FEW_PROCESSES,
    Read = fun(Pid, _) ->
               case process_info(Pid, heap_size) of
                   {_, Words} when Words < 8192 ->
                       case AreFew orelse erlang:phash2(Pid, 4) =:= Phase rem 4 of true -> heap(Pid); false -> Words end;
                   {_, _} -> heap(Pid);
                   undefined -> undefined
               end
           end,
    Rank = fun(Pid, Heap, Acc) ->
               case is_map_key(Pid, Large) of true -> Acc; false -> rank(Pid, Heap, Acc) end
           end,
    Capacity = Top + length(Own),
    Old = maps:keys(Large),
    Carried = add_all(Old, read_all(fun(P, _) -> heap(P) end, Old), fun rank/3,
                      #heaps{largest = top(Capacity), binaries = top(Capacity)}),
    Part = part_of_heaps(State),
    {Round, Heaps, State1} =
        case Part of
            not_yet -> {State#state.heaps, Carried, State};
            _ -> scan_each(Part, 12, most_heaps(Part, Procs), Read, Rank, Carried, State)
        end,
    Foreign = fun(List) -> lists:sublist([Pid || {_, Pid} <- top_list(List), not lists:member(Pid, Own)], Top) end,
    Largest = Foreign(Heaps#heaps.largest),
    Referring = Foreign(Heaps#heaps.binaries),
    Why = [{P, reductions} || P <- best(Busy, Top)] ++ [{P, memory} || P <- Largest]
        ++ [{P, queue} || P <- best(Queued, Top)] ++ [{P, binary} || P <- Referring]
        ++ [{P, waited_for} || P <- State#state.waited_for] ++ [{P, message} || P <- State#state.received]
        ++ [{P, tracer} || P <- State#state.tracers],
    Masters = maps:from_list(ets:select(ac_tab, [{{{application_master, '$1'}, '$2'}, [], [{{'$2', '$1'}}]}])),
    IsWalked = may_walk(),
    Rows = details(fun(Pid) -> process_row(Pid, Masters, Features, IsWalked) end, unique([Pid || {Pid, _} <- Why]), State1),
    Head = case Part of not_yet -> unread(Round, erlang:system_info(process_count)); _ -> head(Round) end,
    Title = fun(Pid) -> case State#state.titles of #{Pid := Label} -> #{label => Label}; #{} -> #{} end end,
    %% The sum over all processes is complete when a round ends; the largest ones of earlier parts are read in each part.
    OfParts = case Head of #{part := 1} -> 0; _ -> State#state.vheap end + Heaps#heaps.vheap - Carried#heaps.vheap,
    Binaries = case Head of
                   #{last := true} when AreFew -> (OfParts + Carried#heaps.vheap) * erlang:system_info(wordsize);
                   _ -> undefined
               end,
    {Head#{binary_vheap_bytes => Binaries, at_work => work_rows(State#state.work),
           rows => [(maps:merge(Title(Pid), Row))#{by => [B || {P, B} <- Why, P =:= Pid], delta_reductions => maps:get(Pid, Busy, 0),
                         ran => most_of(ran, Pid, State#state.ran), stood => most_of(stood, Pid, State#state.ran)}
                    || {Pid, Row} <- Rows]},
     State1#state{heaps = Round, vheap = OfParts, procs = Procs#procs{busy = #{}, queued = #{}}, waited_for = [], received = [], tracers = [],
                  ran = #{}, work = #{},
                  large = maps:from_list([{Pid, true} || Pid <- Largest ++ Referring])}}.

most_of(How, Pid, Ran) ->
    Stacks = maps:from_list([{Stack, Count} || {{As, Stack}, Count} <- maps:to_list(maps:get(Pid, Ran, #{})), As =:= How]),
    [{Stack, maps:get(Stack, Stacks)} || Stack <- best(Stacks, ?STACKS_PER_PROCESS)].

most_heaps(#round{number = 1, total = Total}, _) -> Total;
most_heaps(#round{total = Total}, #procs{quiet = true}) ->
    min(?QUIET_HEAPS, max(?HEAPS_AT_ONCE div 2, Total div (2 * ?HEAP_PARTS) + 1));
most_heaps(#round{total = Total}, _) ->
    max(?HEAPS_AT_ONCE, Total div ?HEAP_PARTS + 1).

%% A round begins with the known list.
part_of_heaps(#state{heaps = #round{rest = []} = Round} = State) ->
    case known_processes(State) of
        {List, Total} -> next_round(List, Total, Round);
        not_yet -> not_yet
    end;
part_of_heaps(#state{heaps = Round}) -> further_part(Round).

%% {list or list table, total}: that of `procs', if it is valid or expensive to build; `not_yet' while it is being built.
known_processes(#state{procs = #procs{round = #round{alive = Alive, list = List, total = Total}}}) ->
    case {List, erlang:system_info(process_count)} of
        {{list_table, _, _}, _} -> {List, Total};
        {_, Alive} -> {List, Total};
        {_, Count} when Count > ?MAX_LIST -> not_yet;
        _ ->
            All = processes(),
            {All, length(All)}
    end.

%% Whether all processes together have so few links and monitors that walking those of one takes a moment only. Their number is
%% unknown if +MFe false has disabled their allocator.
may_walk() ->
    case fixed() of
        [] -> false;
        Fixed ->
            Count = fun(Kind, Each) -> proplists:get_value(Kind, Fixed, 0) div Each end,
            Count(<<"monitor">>, ?MONITOR_BYTES) + Count(<<"link">>, ?LINK_BYTES) =< ?MAX_WALKED_LINKS
    end.

%% {words of heap, words of binaries}
heap(Pid) ->
    case process_info(Pid, garbage_collection_info) of
        {_, Info} -> {heap_words(Info), vheap_words(Info)};
        undefined -> undefined
    end.

rank(_, Words, #heaps{largest = {0, Lowest, _}} = Heaps) when is_integer(Words), Words =< Lowest -> Heaps;
rank(Pid, Words, #heaps{largest = Largest} = Heaps) when is_integer(Words) ->
    Heaps#heaps{largest = top_add(Words, Pid, Largest)};
rank(Pid, {Words, 0}, Heaps) -> rank(Pid, Words, Heaps);
rank(Pid, {Words, Vheap}, #heaps{binaries = Binaries, vheap = Sum} = Heaps) ->
    rank(Pid, Words, Heaps#heaps{binaries = top_add(Vheap, Pid, Binaries), vheap = Sum + Vheap});
rank(_, _, Heaps) -> Heaps.

unique([First | Rest]) -> [First | unique([E || E <- Rest, E =/= First])];
unique([]) -> [].

%% The keys with the highest values.
best(Map, N) ->
    [Key || {_, Key} <- lists:sublist(lists:reverse(lists:sort([{V, K} || {K, V} <- maps:to_list(Map)])), N)].

process_row(Pid, Masters, Features, IsWalked) ->
    Word = erlang:system_info(wordsize),
    Waiting = process_info(Pid, [message_queue_len, garbage_collection_info]),
    Walked = case Waiting of [{_, Messages} | _] when IsWalked, Messages =< ?MAX_WALKED_MESSAGES -> [memory]; _ -> [] end,
    Items = [priority, reductions, message_queue_len, message_queue_data, trap_exit, group_leader,
             garbage_collection, garbage_collection_info, current_function, current_stacktrace | Walked],
    %% The status is read separately and first, from outside. The other items make the process run to answer, and on some releases
    %% it then reports itself as running. It may take its messages then, so the queue length is that read before.
    case {process_info(Pid, status), identity(Pid, Features), process_info(Pid, Items)} of
        {{_, Status}, #{call := Call, parent := Parent} = Identity,
         [{_, Priority}, {_, Reductions}, {_, QueueNow}, {_, QueueData}, {_, TrapExit}, {_, Leader}, {_, Gc},
          {_, HeapsNow}, {_, Function}, {_, Stack} | Memory]} ->
            {Queue, Heaps} = case QueueData of
                                 on_heap -> {element(2, hd(Waiting)), element(2, lists:last(Waiting))};
                                 %% With messages outside of the heap, `memory' matches the current queue.
                                 off_heap -> {QueueNow, HeapsNow}
                             end,
            Beside = [{memory_bytes, Bytes + (heap_words(Heaps) - heap_words(HeapsNow)) * Word} || {memory, Bytes} <- Memory],
            Row = #{pid => id(Pid), initial_call => Call, status => Status, priority => Priority, reductions => Reductions,
                    message_queue_len => Queue, message_queue_data => QueueData, trap_exit => TrapExit,
                    heap_bytes => heap_words(Heaps) * Word, binary_vheap_bytes => vheap_words(Heaps) * Word,
                    fragment_bytes => proplists:get_value(mbuf_size, Heaps) * Word,
                    minor_gcs => proplists:get_value(minor_gcs, Gc),
                    fullsweep_after => proplists:get_value(fullsweep_after, Gc),
                    min_heap_size_words => proplists:get_value(min_heap_size, Gc),
                    max_heap_size_words => max_heap(proplists:get_value(max_heap_size, Gc)),
                    current_function => mfa(Function), stack => stack(Function, Stack)},
            Known = maps:merge(made_by(Parent), application(Leader, Masters)),
            maps:merge(maps:merge(Row, maps:with([name, label], Identity)),
                       maps:merge(Known, maps:from_list(Beside)));
        _ -> undefined
    end.

made_by(undefined) -> #{};
made_by(Name) when is_atom(Name) -> #{parent_name => bin(Name)};
made_by(Pid) when node(Pid) =/= node() -> #{parent => id(Pid)};
made_by(Pid) ->
    case process_info(Pid, registered_name) of
        {_, Name} -> #{parent => id(Pid), parent_name => bin(Name)};
        _ -> #{parent => id(Pid)}
    end.

application(Leader, Masters) ->
    case Masters of
        #{Leader := App} -> #{application => bin(App)};
        _ -> #{}
    end.
