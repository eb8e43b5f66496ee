%% `holders': which processes keep binaries alive. The garbage collector counts references, so a binary shared by two processes counts
%% twice; therefore each process is asked which binaries it refers to.

%% Time limit for one process to list its binaries, and maximum number of distinct binaries.
-define(HELD_NS, 2000000000).
-define(MAX_BINARIES, 500000).

holders(Top, Params, State) ->
    Until = until(holders, Params),
    {Total, Scanned, Found, State1} =
        case Params of
            #{pids := Names} ->
                Pids = local_pids(Names),
                {length(Names), length(Pids), [{P, H} || {P, {_, _} = H} <- lists:zip(Pids, heaps_of(Pids))], State};
            _ -> largest_holders(Top, (now_ns() + Until) div 2, State)
        end,
    {Owner, Table} = binaries_table(),
    Asked = [{Pid, Heap, held_binaries(Pid, Table, Until)} || {Pid, Heap} <- Found],
    Owner ! close,
    Word = erlang:system_info(wordsize),
    Rows = [{Pid, (maps:with([references, binaries, bytes, alone, alone_bytes], Held))#{told => maps:get(told, Held, ok),
                                                                                       heap_bytes => Words * Word,
                                                                                       binary_vheap_bytes => Vheap * Word}}
            || {Pid, {Words, Vheap}, Held} <- Asked],
    Sum = fun(Key) -> lists:sum([maps:get(Key, Held, 0) || {_, _, Held} <- Asked]) end,
    {#{total => Total, scanned => Scanned, rows => named_rows(Rows, State1), binaries => Sum(new), bytes => Sum(new_bytes),
       complete => lists:all(fun({_, _, Held}) -> maps:get(complete, Held, false) end, Asked)}, State1}.

heaps_of(Pids) -> read_all(fun(P, _) -> heap(P) end, Pids).

largest_holders(Top, Until, #state{own = Own} = State) ->
    Rank = fun(Pid, {Words, Vheap}, Acc) when Vheap > 0 -> top_add(Vheap, {Pid, {Words, Vheap}}, Acc);
              (_, _, Acc) -> Acc
           end,
    Chunk = fun(Pids, Acc) -> add_all(Pids, heaps_of(Pids), Rank, Acc) end,
    {Total, Scanned, Ranked, Next} = each_process(Chunk, top(Top + length(Own)), Until, State),
    {Total, Scanned, lists:sublist([Found || {_, {Pid, _} = Found} <- top_list(Ranked), not lists:member(Pid, Own)], Top), Next}.

%% The binaries seen so far, so that each is counted once over all processes. The table is freed at priority normal.
binaries_table() ->
    Collector = self(),
    Owner = spawn_opt(fun() ->
                          Collector ! {self(), ets:new(?MODULE, [public])},
                          receive close -> process_flag(priority, normal) end
                      end, [link, {priority, high}]),
    receive {Owner, Table} -> {Owner, Table} end.

held_binaries(Pid, Table, Until) ->
    case now_ns() of
        Now when Now >= Until -> #{told => limit};
        Now ->
            case run_isolated(fun() -> binaries_of(Pid, Table) end, min(Until, Now + ?HELD_NS)) of
                {ok, Held} -> Held;
                late -> #{told => no_answer};
                large -> #{told => many};
                {failed, _} -> #{told => refused}
            end
    end.

%% In a separate process, because a list of all references can be long, and because the call may hang.
binaries_of(Pid, Table) ->
    case process_info(Pid, binary) of
        {binary, References} ->
            Room = ?MAX_BINARIES - ets:info(Table, size),
            Held = #{references => length(References), binaries => 0, bytes => 0, alone => 0, alone_bytes => 0, new => 0, new_bytes => 0},
            count_binaries(lists:sort(References), Table, Room, Held);
        undefined -> #{told => gone}
    end.

%% Sorted, so equal references are adjacent. A binary that has no other references is held by this process alone.
count_binaries([{Id, Size, Count} | Rest], Table, Room, Held) ->
    {Others, Next} = lists:splitwith(fun({Other, _, _}) -> Other =:= Id end, Rest),
    Alone = length(Others) + 1 >= Count,
    IsNew = Room > 0 andalso ets:insert_new(Table, {Id}),
    #{binaries := Binaries, bytes := Bytes, alone := Own, alone_bytes := OwnBytes, new := New, new_bytes := NewBytes} = Held,
    Seen = Held#{binaries := Binaries + 1, bytes := Bytes + Size},
    Kept = case Alone of true -> Seen#{alone := Own + 1, alone_bytes := OwnBytes + Size}; false -> Seen end,
    case IsNew of
        true -> count_binaries(Next, Table, Room - 1, Kept#{new := New + 1, new_bytes := NewBytes + Size});
        false -> count_binaries(Next, Table, Room, Kept)
    end;
count_binaries([], _, Room, Held) ->
    Held#{complete => Room > 0}.
