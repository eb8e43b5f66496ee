%% Dispatch of items, and items that are one call to the VM. docs/agent-protocol.md defines each answer.

%% With fewer free entries in the process table, no process is spawned to count spawned processes.
-define(MIN_FREE_PIDS, 100).
%% A window of microstate accounting is due after 1/WINDOWS of the time since the collector began, but at most after
%% MAX_WINDOW_PAUSE_NS. Short recordings need many short windows, since they have no time for many long ones.
-define(WINDOWS, 2).
-define(MAX_WINDOW_PAUSE_NS, 3000000000).

-spec read(atom(), map(), #state{}) -> map() | {map(), #state{}}.
read(facts, _, State) -> facts(State);
read(msacc, _, State) -> msacc(State);
read(scheduler_wall_time, _, _) ->
    case erlang:statistics(scheduler_wall_time_all) of
        undefined -> #{rows => []};
        Rows -> #{rows => lists:keysort(1, Rows)}
    end;
read(run_queues, _, _) ->
    #{lengths => erlang:statistics(run_queue_lengths_all), active => erlang:statistics(active_tasks_all)};
read(statistics, _, _) ->
    {Reductions, _} = erlang:statistics(reductions),
    {Gcs, Words, _} = erlang:statistics(garbage_collection),
    {{input, In}, {output, Out}} = erlang:statistics(io),
    {Switches, _} = erlang:statistics(context_switches),
    {Runtime, _} = erlang:statistics(runtime),
    %% Not statistics(wall_clock): a call resets the time since the last call for everybody else.
    Wall = erlang:convert_time_unit(erlang:monotonic_time() - erlang:system_info(start_time), native, millisecond),
    #{reductions => Reductions, gc_count => Gcs, gc_reclaimed_words => Words, io_in_bytes => In,
      io_out_bytes => Out, context_switches => Switches, runtime_ms => Runtime, wall_ms => Wall};
read(memory, _, State) ->
    Memory = try maps:from_list(erlang:memory()) catch error:notsup -> throw(unsupported) end,
    {Memory, State#state{binary_bytes = maps:get(binary, Memory)}};
read(counts, _, #state{spawned = Before} = State) ->
    Processes = erlang:system_info(process_count),
    Counts = maps:merge(mnesia(),
                        #{processes => Processes, ports => erlang:system_info(port_count),
                          atoms => erlang:system_info(atom_count), ets => erlang:system_info(ets_count)}),
    %% If the process table were full, the VM would log the failed spawn.
    case erlang:system_info(process_limit) - Processes of
        Free when Free < ?MIN_FREE_PIDS -> {Counts, State};
        _ ->
            Spawned = spawned(spawn_and_await_end(), Before),
            {Counts#{spawned => element(1, Spawned)}, State#state{spawned = Spawned}}
    end;
read(check_io, _, _) -> check_io();
read(procs, Params, State) -> procs(bounded(top, Params, 1, 20, 100), State);
read(processes, Params, State) -> processes(bounded(top, Params, 1, 10, 50), State);
read(spawns, _, State) -> spawns(State);
read(atoms, _, State) -> atoms(State);
read(ran, _, State) -> ran(State);
read(crashes, _, State) -> crashes(State);
read(broker, _, State) -> broker(State);
read(broker_clients, _, State) -> broker_clients(State);
read(weigh, _, State) -> weigh(State);
read(messages, _, State) -> messages(State);
read(stands, Params, State) -> stands(bounded(sample, Params, 1, 200, 1000), State);
read(ets, Params, State) -> tables(bounded(top, Params, 1, 10, 50), State);
read(table_growth, _, State) -> table_growth(State);
read(ports, Params, State) -> ports(bounded(top, Params, 1, 10, 50), State);
read(dist, _, State) -> dist(State);
read(traces, _, State) -> traces(State);
read(events, _, State) -> events(State);
read(host, Params, State) -> host(Params, State);
read(allocators, _, _) -> allocators();
read(carriers, Params, _) -> walk_carriers(Params);
read(allocations, Params, _) -> walk_allocations(bounded(top, Params, 1, 100, 1000), Params);
read(holders, Params, State) -> holders(bounded(top, Params, 1, 10, 50), Params, State);
read(collect, Params, State) -> collections(bounded(top, Params, 1, 20, 100), Params, State);
read(code_memory, Params, _) -> code_memory(bounded(top, Params, 1, 20, 200), Params);
read(locks, Params, State) -> locks(bounded(top, Params, 1, 200, 2000), Params, State);
read(_, _, _) -> throw(unsupported).

%% Awaits its end, so that the VM's process count is the same as before: otherwise `procs', which is read next, would take the
%% difference for new processes and list all again. At priority max it runs as soon as the collector waits, however long the run
%% queue is.
spawn_and_await_end() ->
    {Pid, Monitor} = spawn_opt(fun() -> ok end, [monitor, {priority, max}]),
    receive {'DOWN', Monitor, process, _, _} -> Pid end.

%% Number of processes that the VM has spawned, by the pid of a new one. Slots of the process table are assigned in turn, and each
%% reuse of a slot increases its pid number by the table size: so the number of a new pid grows by one for each spawned process, and
%% by one for each slot that is skipped because its process is alive. A slot that was occupied for long has a lower number than its
%% neighbours, so the highest number counts. A pid has two parts: the first has 15 bits, or 28 on releases where pid numbers have 60
%% bits instead of 28.
spawned(Pid, {Before, Width}) ->
    Text = term_to_binary(Pid),
    <<First:32, Second:32, _Creation:32>> = binary_part(Text, byte_size(Text), -12),
    {Bits, Now} = case Width =:= wide orelse First bsr 15 > 0 of
                      true -> {28, wide};
                      false -> {15, narrow}
                  end,
    case Second bsl Bits + First of
        Number when Number > Before; Before - Number > 1 bsl 27 -> {Number, Now};
        _ -> {Before, Now}
    end.

%% The keeper switches accounting on in windows; between them the counters do not change. A sample requests each window. Switching
%% costs the same for a long window as for a short one, so later ones are longer and fewer.
msacc(#state{keeper = Keeper, began_ns = Began, accounted_ns = Last} = State) ->
    Now = now_ns(),
    Due = Now - Last >= min(?MAX_WINDOW_PAUSE_NS, (Now - Began) div ?WINDOWS),
    Due andalso (Keeper ! {account, max(1, min(60000, (Now - Last) div 1000000))}),
    case erlang:statistics(microstate_accounting) of
        undefined -> throw(unsupported);
        [#{counters := First} | _] = Threads ->
            States = maps:keys(First),
            {#{states => States,
               threads => [{Type, Id, [maps:get(S, Counters) || S <- States]}
                           || #{type := Type, id := Id, counters := Counters} <- Threads]},
             case Due of true -> State#state{accounted_ns = Now}; false -> State end}
    end.

check_io() ->
    Sets = erlang:system_info(check_io),
    Get = fun(Key, Set) -> proplists:get_value(Key, Set, 0) end,
    #{max_fds => lists:max([Get(max_fds, S) || S <- Sets]),
      pollsets => [{bin(Get(primary, S)), Get(fallback, S) =:= true, Get(poll_threads, S),
                    Get(total_poll_set_size, S), Get(active_fds, S), Get(pending_updates, S),
                    Get(memory_size, S)} || S <- Sets]}.
