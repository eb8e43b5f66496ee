%% @doc Measures what the agent costs an idle node at one sample per second. Started by cost.sh.
-module(agent_cost).
-export([main/1]).

-define(HOT, [msacc, scheduler_wall_time, run_queues, statistics, memory, counts, check_io, procs, ran, crashes, table_growth, weigh]).
-define(SLOW, [stands, messages, processes, spawns, atoms, ets, ports, dist, allocators]).

%% Arguments: release, its root, folder of agent_target within that root, numbers of processes and tables, seconds, budget in ppm.
-spec main([string()]) -> no_return().
main([Release, Root, Beams | Numbers]) ->
    [Processes, Tables, Seconds, Budget] = [list_to_integer(N) || N <- Numbers],
    %% Busy wait is off, since it would use far more CPU than the agent.
    Flags = ["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none", "+P", integer_to_list(max(262144, 2 * Processes))],
    Target = agent_nodes:start(Release, Root, Beams, case list_to_integer(Release) >= 27 of
                                                         true when Processes < 500000 -> lists:sublist(Flags, 6);
                                                         _ -> Flags
                                                     end),
    Node = agent_nodes:node_of(Target),
    agent_nodes:call(Target, idle, [Processes]),
    agent_nodes:call(Target, unnamed_tables, [Tables]),
    OsPid = erpc:call(Node, os, getpid, []),
    %% For by_vm/1: accounting that was already on stays on, so all of the time is counted, not just the agent's windows.
    erpc:call(Node, erlang, system_flag, [microstate_accounting, true]),
    wait(2),
    {Base, _} = used(OsPid, fun() -> wait(Seconds) end),
    Agent = agent_client:join(Node, #{budget_ppm => Budget}),
    %% The first samples are not representative.
    _ = samples(Agent, 1, 10, []),
    Monitor = agent_nodes:call(Target, watch_long_schedules, [1]),
    {Used, Samples} = used(OsPid, fun() -> samples(Agent, 11, Seconds, []) end),
    Slices = longest_slices(Node, Agent, agent_nodes:call(Target, long_schedules, [Monitor])),
    Items = lists:append([maps:get(items, S) || S <- Samples]),
    io:format("OTP ~s, ~b processes, ~b tables: ~.3f % of a core by the OS, ~.3f % by the VM~n",
              [Release, Processes, Tables, Used - Base, by_vm(Samples)]),
    io:format("  median us per item: ~s~n", [lists:join(", ", [median(I, Items) || I <- ?HOT ++ ?SLOW])]),
    io:format("  longest time slices in ms (0: below 1 ms): ~w~n", [Slices]),
    #{agent := #{memory_bytes := Memory}} = lists:last(Samples),
    {Us, _} = timer:tc(fun() -> agent_client:leave(Agent) end),
    io:format("  memory of the agent ~b kB; leaving took ~b ms; at most ~b parts per round of procs~n",
              [Memory div 1024, Us div 1000, lists:max([P || {procs, ok, _, _, #{part := P}} <- Items])]),
    agent_nodes:stop(Target),
    halt(0).

%% Returns the longest time slice of the agent, its collector, the reader and the processes that build its lists. This includes
%% slices in which the host preempted the scheduler.
longest_slices(Node, #{agent := Agent}, LongSchedules) ->
    Links = fun(Pid) -> element(2, erpc:call(Node, erlang, process_info, [Pid, links])) end,
    [Collector] = [Pid || Pid <- Links(Agent), Links(Pid) =/= [Agent]],
    Others = Links(Collector) -- [Agent],
    [lists:max([0 | [proplists:get_value(timeout, Info) || {P, Info} <- LongSchedules, P =:= Pid]])
     || Pid <- [Agent, Collector | Others]].

wait(Seconds) -> receive after Seconds * 1000 -> [] end.

%% Takes one sample per second; every tenth includes the slow items.
samples(_, _, 0, Samples) -> lists:reverse(Samples);
samples(Agent, Seq, Left, Samples) ->
    Begin = erlang:monotonic_time(millisecond),
    Items = case Seq rem 10 of 0 -> ?HOT ++ ?SLOW; _ -> ?HOT end,
    Sample = agent_client:sample(Agent, Seq, Items),
    receive after max(0, Begin + 1000 - erlang:monotonic_time(millisecond)) -> ok end,
    samples(Agent, Seq + 1, Left - 1, [Sample | Samples]).

%% Returns {percent of a core that all threads of the VM used while the function ran, the function's result}.
used(OsPid, Fun) ->
    Cpu = cpu_ns(OsPid),
    Begin = erlang:monotonic_time(nanosecond),
    Result = Fun(),
    {100 * (cpu_ns(OsPid) - Cpu) / (erlang:monotonic_time(nanosecond) - Begin), Result}.

cpu_ns(OsPid) ->
    lists:sum([begin
                   {ok, Text} = file:read_file(File),
                   binary_to_integer(hd(binary:split(Text, <<" ">>)))
               end || File <- filelib:wildcard("/proc/" ++ OsPid ++ "/task/*/schedstat")]).

%% Returns the percentage of a core that all threads spent in states other than `sleep', between the first and the last sample.
by_vm(Samples) ->
    [First, Last] = [hd([V || {msacc, ok, _, _, V} <- maps:get(items, S)]) || S <- [hd(Samples), lists:last(Samples)]],
    #{states := States} = First,
    Total = fun(#{threads := Threads}) ->
                lists:foldl(fun({State, Counter}, {Busy, All}) ->
                                {case State of sleep -> Busy; _ -> Busy + Counter end, All + Counter}
                            end, {0, 0}, [P || {_, _, Counters} <- Threads, P <- lists:zip(States, Counters)])
            end,
    {Busy0, All0} = Total(First),
    {Busy, All} = Total(Last),
    100 * (Busy - Busy0) * length(maps:get(threads, First)) / (All - All0).

median(Item, Items) ->
    Costs = lists:sort([Us || {I, ok, _, Us, _} <- Items, I =:= Item]),
    io_lib:format("~s ~b", [Item, lists:nth((length(Costs) + 1) div 2, Costs)]).
