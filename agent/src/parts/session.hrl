%% The agent process: clients, their leases, and the time limit of each item.
%% It never makes a call that may block, so that it answers requests and ends leases in time whatever a collector does.
%% The keeper (src/keeper.eval) spawns it and cleans up after it.

-define(PROTOCOL, 1).
-define(MAX_CLIENTS, 8).
-define(MAX_ITEMS, 32).

%% One sample under way. items: those last passed to the collector; begun_ns: when; done: results so far.
-record(run, {seq, items, done = [], timeout_ms, timer, begin_ns, begun_ns, timeouts = 0}).

%% results: a table into which the collector writes its results, so that they survive if an item hangs it. A message for each item
%% would wake the agent, often on another scheduler (measured, OTP 25, idle node: 34 wake-ups a second with messages, 28 without).
-record(client, {pid, monitor, session, lease_ms, budget_ppm, seen_ms, collector, results, run = idle, last_ns, restarts = 0,
                 dropped = 0}).

%% ours: atomics, 1 while microstate accounting is on because of us.
-record(agent, {keeper, keeper_monitor, msacc_was_on, ours, watcher = none, filer = none, exit_monitor = none, clients = #{}}).

%% @doc The agent process, spawned by the keeper.
-spec init(#{keeper := pid(), msacc_was_on := boolean(), ours := atomics:atomics_ref()}) -> no_return().
init(#{keeper := Keeper, msacc_was_on := WasOn, ours := Ours}) ->
    process_flag(trap_exit, true),
    process_flag(priority, high),
    Agent = #agent{keeper = Keeper, keeper_monitor = monitor(process, Keeper), msacc_was_on = WasOn, ours = Ours},
    try loop(Agent)
    catch
        exit:{beamtune, _} = Reason -> exit(Reason);
        Class:Reason:Stack -> exit({beamtune, agent_failed, text({Class, Reason, Stack})})
    end.

-spec loop(#agent{}) -> no_return().
loop(Agent) ->
    receive Message -> loop(handle(Message, Agent)) end.

handle({finished, Collector, Cost}, Agent) ->
    with_collector(Collector, Agent, fun(C) -> finish(Cost, with_results(C), Agent) end);
handle({timeout, Timer, {item, Pid}}, Agent) ->
    with_client(Pid, Agent, fun(C) -> item_timeout(Timer, C, Agent) end);
handle({timeout, _, {lease, Pid}}, Agent) ->
    lease_check(Pid, Agent);
handle({sample, Pid, Seq, Items, Options}, Agent) when is_integer(Seq), is_map(Options) ->
    Ready = start_services(Items, Agent),
    with_client(Pid, Ready, fun(C) -> start_sample(Seq, Items, Options, seen(C), Ready) end);
handle({renew, Pid}, Agent) ->
    with_client(Pid, Agent, fun seen/1);
handle({leave, Pid}, Agent) ->
    leave(Pid, Agent);
handle({join, Session, Pid, Options}, Agent) when is_pid(Session), is_pid(Pid), is_map(Options) ->
    join(Session, Pid, Options, Agent);
handle({'DOWN', Monitor, process, _, _}, #agent{keeper_monitor = Monitor} = Agent) ->
    orphaned(Agent);
handle({'DOWN', Monitor, process, _, _}, #agent{clients = Clients} = Agent) ->
    lists:foldl(fun(#client{pid = Pid}, A) -> drop(Pid, client_gone, A) end, Agent,
                [C || #client{monitor = M} = C <- maps:values(Clients), M =:= Monitor]);
handle({gone, Pid}, Agent) ->
    drop(Pid, client_gone, Agent);
handle({'EXIT', Pid, Reason}, Agent) ->
    collector_ended(Pid, Reason, Agent);
handle(Request, Agent) when is_tuple(Request), tuple_size(Request) > 1, is_pid(element(2, Request)) ->
    with_client(element(2, Request), Agent,
                fun(C) -> send({beamtune, bad_request, text(element(1, Request))}, C) end);
handle(_, Agent) ->
    Agent.

%% Drops the message of an unknown client.
with_client(Pid, #agent{clients = Clients} = Agent, Fun) ->
    case Clients of
        #{Pid := Client} -> Agent#agent{clients = Clients#{Pid := Fun(Client)}};
        _ -> Agent
    end.

%% Drops the message of a collector that was replaced.
with_collector(Collector, #agent{clients = Clients} = Agent, Fun) ->
    case [C || #client{collector = P} = C <- maps:values(Clients), P =:= Collector] of
        [#client{pid = Pid} = Client] -> Agent#agent{clients = Clients#{Pid := Fun(Client)}};
        [] -> Agent
    end.

join(Session, Pid, _, #agent{clients = Clients} = Agent)
  when map_size(Clients) >= ?MAX_CLIENTS; is_map_key(Pid, Clients) ->
    Session ! {refused, self(), <<"too many clients share this agent, or this one has joined already">>},
    Agent;
join(Session, Pid, Options, #agent{clients = Clients, keeper = Keeper} = Agent) ->
    Lease = bounded(lease_ms, Options, 1000, 30000, 3600000),
    Budget = bounded(budget_ppm, Options, 100, 10000, 1000000),
    %% A client's session has been linked to it since before its first instruction, and ends with it; the keeper stays, and
    %% sends `gone'. The client itself is never monitored: that could open a connection to a node that is gone.
    Client = new_collector(#client{pid = Pid, monitor = monitor(process, Session), session = Session, lease_ms = Lease,
                                   budget_ppm = Budget, seen_ms = now_ms(), last_ns = now_ns() - ?FIRST_INTERVAL_NS}),
    erlang:start_timer(Lease, self(), {lease, Pid}),
    Session ! {joined, Keeper},
    Joined = send({beamtune, joined,
                   #{protocol => ?PROTOCOL, agent => self(), session => Session,
                     shared => map_size(Clients) > 0, msacc_was_on => Agent#agent.msacc_was_on,
                     lease_ms => Lease, budget_ppm => Budget}}, Client),
    Agent#agent{clients = Clients#{Pid => Joined}}.

leave(Pid, #agent{clients = Clients} = Agent) ->
    case Clients of
        #{Pid := Client} ->
            send({beamtune, left, #{remaining => map_size(Clients) - 1}}, Client),
            drop(Pid, left, Agent);
        _ -> Agent
    end.

%% Removes a client. The agent ends with its last one.
drop(Pid, Why, #agent{clients = Clients} = Agent) ->
    case maps:take(Pid, Clients) of
        {#client{collector = Collector, results = Results, monitor = Monitor, session = Session}, Rest} ->
            demonitor(Monitor, [flush]),
            exit(Collector, kill),
            ets:delete(Results),
            Session ! {left, self()},
            map_size(Rest) =:= 0 andalso exit({beamtune, Why}),
            Agent#agent{clients = Rest};
        error -> Agent
    end.

%% The keeper was killed, so the agent has to clean up: it resets the flag, and starts a purge that kills this process and
%% its collectors as users of old code.
-spec orphaned(#agent{}) -> no_return().
orphaned(#agent{ours = Ours}) ->
    atomics:get(Ours, 1) =:= 1 andalso erlang:system_flag(microstate_accounting, false),
    Purge = case mask_is_back() of
                true -> purge;
                %% A soft purge waits until no process runs the module.
                false -> soft_purge
            end,
    catch erlang:delete_module(?MODULE),
    spawn(erts_code_purger, Purge, [?MODULE]),
    exit({beamtune, keeper_ended}).

seen(Client) -> Client#client{seen_ms = now_ms()}.

lease_check(Pid, #agent{clients = Clients} = Agent) ->
    case Clients of
        #{Pid := #client{seen_ms = Seen, lease_ms = Lease}} ->
            case Seen + Lease - now_ms() of
                Left when Left > 0 -> erlang:start_timer(Left, self(), {lease, Pid}), Agent;
                _ -> drop(Pid, client_gone, Agent)
            end;
        _ -> Agent
    end.

start_sample(Seq, _, _, #client{run = #run{seq = Running}} = Client, _) ->
    send({beamtune, busy, Seq, Running}, Client);
start_sample(Seq, Items, Options, Client, Agent) when length(Items) > 0, length(Items) =< ?MAX_ITEMS ->
    Timeout = bounded(timeout_ms, Options, 50, 2000, 60000),
    run(#run{seq = Seq, items = Items, timeout_ms = Timeout, begin_ns = now_ns()}, Client, Agent);
start_sample(_, _, _, Client, _) ->
    send({beamtune, bad_request, <<"items must be a list of 1 to 32">>}, Client).

%% Passes the remaining items to the collector.
run(#run{items = Items, timeout_ms = Timeout} = Run, Client,
    #agent{clients = Clients, keeper = Keeper, watcher = Watcher, filer = Filer, exit_monitor = ExitMonitor}) ->
    #client{collector = Collector, last_ns = Last} = Client,
    Own = [self(), Keeper, Watcher, Collector | [C || #client{collector = C} <- maps:values(Clients)]]
        ++ [Pid || {Pid, _} <- [Filer]] ++ [ExitMonitor || is_pid(ExitMonitor)],
    Collector ! {run, Items, #{keeper => Keeper, watcher => Watcher, filer => Filer, exit_monitor => ExitMonitor, own => Own,
                               timeout_ms => Timeout, interval_ns => Run#run.begin_ns - Last}},
    timed(Timeout, Client#client{run = Run#run{begun_ns = now_ns()}}).

%% Starts a timer that checks whether an item takes too long.
timed(Ms, #client{pid = Pid, run = Run} = Client) ->
    Client#client{run = Run#run{timer = erlang:start_timer(Ms, self(), {item, Pid})}}.

stop_timer(#run{timer = Timer}) ->
    erlang:cancel_timer(Timer, [{async, true}, {info, false}]).

item_timeout(Timer, #client{results = Results, run = #run{timer = Timer, items = Items, begun_ns = Begun, timeout_ms = Timeout}} = Client, Agent) ->
    Since = case ets:last(Results) of '$end_of_table' -> Begun; Last -> ets:lookup_element(Results, Last, 3) end,
    Limit = case [limit_ms(Item) || Item <- lists:sublist(lists:nthtail(ets:info(Results, size), Items), 1)] of
                [Longer] when is_integer(Longer) -> max(Timeout, Longer + ?GRACE_MS);
                _ -> Timeout
            end,
    case Limit - (now_ns() - Since) div 1000000 of
        Left when Left > 0 -> timed(Left, Client);
        _ ->
            exit(Client#client.collector, kill),
            go_on(timeout, #{}, Client, Agent)
    end;
item_timeout(_, Client, _) ->
    Client.

%% Adds the collector's results, the last item first.
with_results(#client{results = Results, run = #run{items = Items, done = Done, begun_ns = Begun} = Run} = Client) ->
    Read = lists:reverse(ets:tab2list(Results)),
    ets:delete_all_objects(Results),
    Client#client{run = Run#run{items = lists:nthtail(length(Read), Items), done = [Result || {_, Result, _} <- Read] ++ Done,
                                begun_ns = case Read of [{_, _, Last} | _] -> Last; [] -> Begun end}};
with_results(Client) -> Client.

%% Starts a collector; replaces a lost one.
new_collector(#client{results = Before, budget_ppm = Budget} = Client) ->
    Before =:= undefined orelse ets:delete(Before),
    Results = ets:new(?MODULE, [ordered_set, public]),
    Client#client{results = Results, collector = start_collector(Budget, Results)}.

%% After a lost collector, continues with the remaining items. If it is the second one lost in this sample, a whole scheduler is
%% probably stuck, and all further items, which would hang too, are skipped.
go_on(Status, Value, Client, Agent) ->
    #client{run = #run{items = Items, done = Done, begun_ns = Since, timeouts = Timeouts} = Run, restarts = Restarts} = Lost = with_results(Client),
    stop_timer(Run),
    Fresh = new_collector(Lost#client{restarts = Restarts + 1}),
    {Hung, Rest} = lists:split(min(1, length(Items)), Items),
    Failed = [{item_name(Item), Status, Since, (now_ns() - Since) div 1000, Value} || Item <- Hung] ++ Done,
    case Rest of
        [_ | _] when Timeouts =:= 0 ->
            run(Run#run{items = Rest, done = Failed, timeouts = 1}, Fresh, Agent);
        _ ->
            Skipped = [{item_name(Item), skipped, now_ns(), 0, #{}} || Item <- Rest],
            finish(#{}, Fresh#client{run = Run#run{items = [], done = lists:reverse(Skipped, Failed)}}, Agent)
    end.

%% Starts watcher, filer and exit monitor, which serve all clients, if an item needs them.
start_services(Items, Agent) when length(Items) =< ?MAX_ITEMS ->
    Names = [item_name(Item) || Item <- Items],
    start_exit_monitor(lists:member(crashes, Names),
                       start_filer(lists:member(host, Names), start_watcher(lists:member(events, Names), Agent)));
start_services(_, Agent) -> Agent.

%% A watcher, filer, exit monitor or collector of ours ended: somebody killed it. Any other exit signal is an order to end.
collector_ended(Pid, _, #agent{watcher = Pid} = Agent) ->
    Agent#agent{watcher = none};
collector_ended(Pid, _, #agent{filer = {Pid, _}} = Agent) ->
    Agent#agent{filer = none};
%% An exit reason exceeded its maximum heap size.
collector_ended(Pid, _, #agent{exit_monitor = Pid} = Agent) ->
    Agent#agent{exit_monitor = none};
collector_ended(Pid, Reason, #agent{clients = Clients} = Agent) ->
    case [C || #client{collector = P} = C <- maps:values(Clients), P =:= Pid] of
        [#client{run = idle, restarts = Restarts} = Client] ->
            Agent#agent{clients = Clients#{Client#client.pid := new_collector(Client#client{restarts = Restarts + 1})}};
        [Client] ->
            Agent#agent{clients = Clients#{Client#client.pid := go_on(error, text({collector_ended, Reason}), Client, Agent)}};
        [] when Reason =:= killed; Reason =:= normal -> Agent;
        [] -> exit({beamtune, {ended_by, text(Reason)}})
    end.

%% Sends the answer.
finish(Cost, #client{run = #run{} = Run} = Client, #agent{clients = Clients}) ->
    stop_timer(Run),
    {End, SystemUs, OsSystemUs} = {now_ns(), erlang:system_time(microsecond), os:system_time(microsecond)},
    {reductions, Reductions} = process_info(self(), reductions),
    {memory, Memory} = process_info(self(), memory),
    #client{restarts = Restarts, dropped = Dropped} = Client,
    Done = lists:reverse(Run#run.done),
    Own = #{agent_reductions => Reductions,
            collector_reductions => maps:get(reductions, Cost, 0),
            cost_us => lists:sum([element(4, D) || D <- Done]),
            scan_us => maps:get(scan_us, Cost, 0),
            memory_bytes => Memory + maps:get(memory, Cost, 0),
            restarts => Restarts, dropped => Dropped},
    send({beamtune, sample, Run#run.seq,
          #{begin_ns => Run#run.begin_ns, end_ns => End, system_us => SystemUs, os_system_us => OsSystemUs,
            clients => map_size(Clients), agent => Own, items => Done}},
         Client#client{run = idle, last_ns = Run#run.begin_ns});
finish(_, Client, _) ->
    Client.

%% Never blocks on the network, never opens a connection.
send(Message, #client{pid = Pid, dropped = Dropped} = Client) ->
    case erlang:send(Pid, Message, [noconnect, nosuspend]) of
        ok -> Client;
        _ -> Client#client{dropped = Dropped + 1}
    end.

bounded(Key, Map, Min, Default, Max) ->
    case Map of
        #{Key := N} when is_integer(N) -> max(Min, min(Max, N));
        _ -> Default
    end.
