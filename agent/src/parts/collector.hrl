%% The collector reads the items of one client and holds the state from sample to sample; its reader reads single processes,
%% tables and ports. The reader may hang (process_info waits for a process inside a NIF), so it holds no state: the collector
%% checks its cursor, and kills and replaces it if it does not move.

%% While it reads a sample, the collector pauses after this much work: at priority high it would keep others off the scheduler.
-define(WORK_NS, 2000000).
%% 240 kB: a chunk, the stack needed to read it, and half of the garbage.
-define(READER_HEAP_WORDS, 30000).

%% Results: the agent's table for the results: {increasing number, result, when it was ready}.
start_collector(Budget, Results) ->
    Agent = self(),
    spawn_opt(fun() -> collector(Agent, Budget, Results) end, [link, {priority, high}, {fullsweep_after, 20}]).

collector(Agent, Budget, Results) ->
    try
        start_reader(),
        Now = now_ns(),
        collect(#state{agent = Agent, budget_ppm = Budget, results = Results, features = features(), own = [self()], began_ns = Now, list_again_ns = Now,
                       atoms = erlang:system_info(atom_count), accounted_ns = Now - ?FIRST_INTERVAL_NS})
    catch
        %% Not `normal', which would not end the processes linked to us.
        exit:given_up -> exit(given_up);
        Class:Reason:Stack -> exit({collector_failed, text({Class, Reason, Stack})})
    end.

collect(#state{listing = Listing} = State) ->
    receive
        {run, Items, #{keeper := Keeper, watcher := Watcher, filer := Filer, exit_monitor := ExitMonitor, own := Own,
                       timeout_ms := Timeout, interval_ns := Interval}} ->
            {Reader, _} = get(reader),
            Done = lists:foldl(fun collect_item/2,
                               State#state{keeper = Keeper, watcher = Watcher, filer = Filer, exit_monitor = ExitMonitor, own = [Reader | Own],
                                           timeout_ms = Timeout, interval_ns = Interval, rested_ns = now_ns(),
                                           connecting = next_sample(State#state.connecting)},
                               Items),
            [{_, Reductions}, {_, Memory}] = process_info(self(), [reductions, memory]),
            %% The reader is idle. Both are read from outside; `memory', little more than its heap, would wake it.
            {ReaderReductions, ReaderMemory} =
                case process_info(element(1, get(reader)), [reductions, garbage_collection_info]) of
                    [{_, R}, {_, Heaps}] -> {R, heap_words(Heaps) * erlang:system_info(wordsize)};
                    %% Somebody killed it.
                    undefined -> {0, 0}
                end,
            State#state.agent ! {finished, self(), #{reductions => Reductions + ReaderReductions,
                                                     memory => Memory + ReaderMemory,
                                                     scan_us => Done#state.scan_ns div 1000}},
            collect(start_listing(Done#state{scan_ns = 0}));
        {listed, Lister, Table, Total} when Lister =:= element(2, Listing) ->
            collect(listed(Lister, Table, Total, State));
        {files, Number, _} ->
            collect(late_answer(Number, State));
        _ ->
            collect(State)
    after wait_ms(State) ->
        case now_ns() of
            Now when Now >= State#state.stacks_ns -> collect(sample_between(sample_connections(State)));
            _ -> collect(step(State))
        end
    end.

%% Time until the next step of a part that is read between samples, or until the next random sample. Atoms compare greater than
%% numbers.
wait_ms(#state{procs = #procs{pause_ms = Pause}, stacks_ns = infinity}) -> Pause;
wait_ms(#state{procs = #procs{pause_ms = Pause}, stacks_ns = At}) -> min(Pause, max(0, (At - now_ns()) div 1000000 + 1)).

collect_item(Item, #state{results = Results, timeout_ms = Timeout} = Before) ->
    Begin = now_ns(),
    State = sample_connections(Before),
    Params = case Item of {_, #{} = P} -> P; _ -> #{} end,
    Name = item_name(Item),
    {Status, Value, Next} =
        try read(Name, Params, State#state{deadline_ns = Begin + min(?SCAN_NS, Timeout * 250000)}) of
            {#{} = Map, #state{} = New} -> {ok, Map, New};
            #{} = Map -> {ok, Map, State}
        catch
            throw:unsupported -> {unsupported, #{}, State};
            Class:Reason:Stack -> {error, text({Class, Reason, Stack}), State}
        end,
    Read = now_ns() - Begin - (Next#state.paused_ns - State#state.paused_ns),
    try ets:insert(Results, {erlang:unique_integer([monotonic]), {Name, Status, Begin, Read div 1000, Value}, now_ns()})
    catch error:badarg -> exit(given_up)
    end,
    rest(Next).

%% Pauses after some work, so that others can run.
rest(#state{rested_ns = Since, paused_ns = Paused} = State) ->
    case now_ns() of
        Now when Now - Since > ?WORK_NS ->
            receive after 1 -> ok end,
            Rested = now_ns(),
            State#state{rested_ns = Rested, paused_ns = Paused + Rested - Now};
        _ -> State
    end.

item_name({Name, _}) when is_atom(Name) -> Name;
item_name(Name) when is_atom(Name) -> Name;
item_name(_) -> invalid.

%% The collector keeps its reader, and what to skip because it hung one, in its process dictionary. The reader's heap has room for
%% a chunk and the garbage of reading it, so that it need not grow.
start_reader() ->
    Cursor = atomics:new(1, []),
    Options = [link, {priority, high}, {fullsweep_after, 20}, {min_heap_size, ?READER_HEAP_WORDS}],
    put(reader, {spawn_opt(fun() -> reader(Cursor) end, Options), Cursor}).

reader(Cursor) ->
    receive
        {Collector, Fun, Elements} ->
            Collector ! {self(), try read_each(Elements, 1, Fun, Cursor) catch C:R:S -> {failed, text({C, R, S})} end},
            reader(Cursor)
    end.

read_each([Element | Rest], Index, Fun, Cursor) ->
    atomics:put(Cursor, 1, Index),
    Result = Fun(Element, Index),
    [Result | read_each(Rest, Index + 1, Fun, Cursor)];
read_each([], _, _, _) -> [].

%% The results of Fun for each element and its position in the list; `hung' for skipped elements, and for all when a second
%% one hangs (each costs time). Fun runs in the reader, so its environment is copied.
read_all(Fun, Elements) -> read_all(Fun, Elements, 1).

read_all(_, [], _) -> [];
read_all(Fun, Elements, Hangs) ->
    {Reader, Cursor} = get(reader),
    Safe = case left_out() of
               [] -> Fun;
               Skip -> fun(E, I) -> case lists:keymember(E, 1, Skip) of true -> hung; false -> Fun(E, I) end end
           end,
    atomics:put(Cursor, 1, 0),
    Reader ! {self(), Safe, Elements},
    case await(Reader, Cursor, 0) of
        {results, Results} -> Results;
        {hangs, At} ->
            unlink(Reader),
            exit(Reader, kill),
            start_reader(),
            put(left_out, lists:sublist([{lists:nth(At, Elements), now_ns()} | left_out()], ?MAX_SKIPPED)),
            case Hangs of
                1 -> read_all(Fun, Elements, 2);
                2 -> [hung || _ <- Elements]
            end
    end.

await(Reader, Cursor, Before) ->
    receive
        {Reader, {failed, Why}} -> error({reader_failed, Why});
        {Reader, Results} -> {results, Results}
    after ?HANG_CHECK_MS ->
        case atomics:get(Cursor, 1) of
            Before when Before > 0 -> {hangs, Before};
            At -> await(Reader, Cursor, At)
        end
    end.

%% [{process, port or table, since when}]
left_out() ->
    case get(left_out) of
        [_ | _] = Skip ->
            Now = now_ns(),
            Left = [S || {_, Since} = S <- Skip, Since + ?SKIP_NS > Now],
            put(left_out, Left),
            Left;
        _ -> []
    end.

%% Features of this release, found by trying them on ourselves.
features() ->
    Asks = [{parent, fun() -> process_info(self(), parent) end},
            {label, fun() -> process_info(self(), label) end},
            {dictionary_item, fun() -> process_info(self(), {dictionary, at}) end},
            %% RabbitMQ runs: its processes store their names.
            {process_name, fun() -> true = is_integer(ets:info(connection_churn_metrics, size)) end}],
    [F || {F, Ask} <- Asks, try Ask() of _ -> true catch error:_ -> false end].
