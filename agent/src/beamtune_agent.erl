%% @doc beamtune's agent: the one module that is put into a node that is being looked at.
%%
%% It answers questions ("pull"): a client sends the list of items that it wants, the agent reads them and
%% answers with one message. docs/agent-protocol.md defines every term; agent/README.md says how the module
%% gets in and out, and what it costs.
%%
%% Processes:
%%
%% <ul>
%% <li>the <em>keeper</em> (src/keeper.eval, not part of this module) loads the module, holds the VM's measuring switches,
%%     and undoes everything when the agent process ends, however it ends;</li>
%% <li>the <em>agent</em> ({@link init/1}) takes requests, keeps the clients' leases and the time limit of each item. It
%%     never calls anything that may block;</li>
%% <li>one <em>collector</em> per client reads the items and holds what is known from sample to sample;</li>
%% <li>one <em>reader</em> per collector reads processes, ports and tables. It holds nothing, because it may hang:
%%     process_info waits for a process that is inside a long NIF, and on some releases for ever for one that is just
%%     ending (erlang/otp#7801). Then it is killed and replaced, and what it hung on is left out for a while;</li>
%% <li>one <em>watcher</em> and one <em>filer</em> for all clients, from the first time on that one needs them: the watcher
%%     takes what the VM tells by itself, the filer reads files of /proc and of control groups.</li>
%% </ul>
%%
%% All have priority high: an overloaded node is just what has to be looked at, and at priority normal each step would wait
%% for the whole run queue. What they may cost is bounded by the budget.
%%
%% Some items take long or disturb the node; they are read only when a person has asked for them by name, within limits of their own.
%%
%% Rules that hold everywhere below: only reading (but for `collect' and `locks', which are among those); no atoms out of data;
%% no process's messages; nothing printed on the node (no process may die of an error); no link to a foreign process; every list
%% and every text that leaves the node is bounded; a scan of everything is done in parts when it would exceed the client's budget.
-module(?AGENT_NAME).

-export([init/1]).

-define(PROTOCOL, 1).
-define(MAX_CLIENTS, 8).
-define(MAX_ITEMS, 32).
-define(NAME_BYTES, 255).
-define(TEXT_BYTES, 512).
%% A reader hangs when it is still at the same process after two looks that far apart.
-define(LOOK_MS, 150).
%% How long what hung a reader is left out before it is tried again.
-define(SKIP_NS, 60000000000).
-define(MAX_SKIPPED, 16).
%% The first sample may cost as much as one after this time.
-define(FIRST_INTERVAL_NS, 1000000000).
%% How many processes (tables, ports) are read at most between two looks at the clock. Each such step hands a list to the
%% reader and back, which wakes two processes, on an idle node two schedulers.
-define(CHUNK, 1024).
%% The same for details.
-define(DETAILS, 8).
%% How long a part of a scan may take, and then the details of the top ones. Reading a process that runs, or is just
%% ending, waits until that process is scheduled: on an overloaded node that is many times the reading itself.
-define(SCAN_NS, 250000000).
%% A part is never planned smaller than this, else a round would not end with a tiny budget.
-define(MIN_PART, 512).
%% All processes are read within so many samples, or seconds where samples come faster,
-define(ROUND_SAMPLES, 3).
%% even beyond the budget, as long as that takes less than this of a core (millionths),
-define(ROUND_PPM, 100000).
%% and in the very first round, with which it begins that a hot process can be seen, this.
-define(FIRST_ROUND_PPM, 300000).
%% More work than this is not done at once when a sample is asked for, but little by little before the next one: at priority
%% high it would keep others from a scheduler.
-define(AT_ONCE_NS, 5000000).
%% One such step, and the shortest pause after it. Receive wakes up by milliseconds.
-define(STEP_NS, 500000).
-define(STEP_PAUSE_NS, 1000000).
%% While a sample is read, there is such a pause after so much work, for the same reason.
-define(WORK_NS, 2000000).
%% More processes than this are listed by a process of its own into a table, in rows of ?CHUNK: a list of them on the
%% collector's heap would have to be moved by its garbage collector again and again, for tens of milliseconds.
-define(BOOK, 30000).
%% Such a list is used for one second for each so many of them, since making it costs as much as reading all. Whether there
%% are new ones cannot be told by their number: others end.
-define(LISTED_PER_S, 50000).
%% What the VM is asked to tell of by itself: collections and time slices that take so many milliseconds, and heaps of so many words
%% after a collection (128 MB). A slice ends after about a millisecond; others take 240 to 500 ms for these limits, and learn of
%% what holds up a whole scheduler for 200 ms from its users.
-define(EVENTS, [{long_gc, 100}, {long_schedule, 50}, {large_heap, 16777216}, busy_port, busy_dist_port]).
%% So many of them in this time are a flood, in which the telling costs more than it tells: then none are taken for a while.
-define(FLOOD, 100).
-define(FLOOD_MS, 100).
-define(PAUSE_MS, 1000).
-define(MOST_PAUSE_MS, 60000).
%% Where a scheduler does not answer, for this and as much again by chance.
-define(BUSY_MS, 250).
%% How many of the last ones are kept for clients that have not read them yet.
-define(EVENTS_KEPT, 50).
%% process_info(P, memory) walks P's links, monitors and messages, and P does nothing else meanwhile: 0.1 us for each monitor
%% (0.25 us where there are a million of them), 0.02 us for each message. It is not asked where the node has more of the former,
%% or the process more of the latter.
-define(WALKED_LINKS, 300000).
%% What one takes at least, in bytes: a monitor on OTP 23, either side of a link on 27.
-define(MONITOR_BYTES, 120).
-define(LINK_BYTES, 40).
-define(WALKED_MESSAGES, 1000000).
%% Of so many processes the collector's numbers are read in each round: 1 us each.
-define(FEW_PROCESSES, 10000).
%% With fewer free places in the table of processes none is taken to see how many have been started.
-define(FREE_PLACES, 100).
%% So many of the newest atoms are looked at, of which so many must begin alike, with so many bytes, for the beginning to be told; and
%% so many beginnings of one are tried.
-define(NEWEST_ATOMS, 50).
-define(FEW_ALIKE, 3).
-define(SHORT_BEGINNING, 2).
-define(MOST_BEGINNINGS, 8).
%% Between two looks whether somebody else's system_monitor has gone.
-define(TRY_AGAIN_MS, 10000).
%% Of the host's files: how many one request may name, how many bytes of one and of all are read, and of how many threads.
-define(MAX_ASKS, 128).
-define(MAX_FILE_BYTES, 262144).
-define(MAX_FILES_BYTES, 1048576).
-define(MAX_THREADS, 2000).
%% What is told of a thread's stat and schedstat (some 300 bytes) at most, and of the end of its status.
-define(THREAD_BYTES, 1024).
-define(STATUS_END_BYTES, 300).
%% Reading a file hangs when it takes so long; then it is left out for ?SKIP_NS.
-define(HANG_NS, 1000000000).
%% What reading the threads may take of the budget (percent), and of CPU for each: three files of some 30 us. What it takes
%% longer is waiting for a CPU.
-define(THREADS_SHARE, 25).
-define(THREAD_NS, 100000).
%% The agent gives an item with a time limit of its own so much longer before it gives its collector up.
-define(GRACE_MS, 2000).
%% What such an item needs much memory for is done in a process that may have so many words (256 MB).
-define(ASIDE_WORDS, 33554432).
%% The VM looks at so many blocks of one carrier at most, and between two pauses at so many besides (erl_alloc_util.c, 23 to 29).
-define(BLOCKS_OF_ONE, 16000).
-define(BLOCKS_BETWEEN, 8000).
%% What looking at a block costs at least where it is in no cache, and what an instance costs besides.
-define(BLOCK_NS, 200).
-define(INSTANCE_NS, 100000).
%% By so many blocks, and not fewer, it is known how fast this node is where most of them are in a cache.
-define(MANY_BLOCKS, 100000).
%% An instance by which it is measured: one with at most so many blocks, and at least so many bytes if there is one.
-define(CHEAP_BLOCKS, 20000).
-define(CHEAP_BYTES, 8388608).
%% Before ERTS 15.1, a walk that pauses within the pool leaves the VM's count of pooled carriers wrong for good. It does not where it
%% has no more blocks to look at than before the first pause; some may come meanwhile.
-define(POOL_BLOCKS, 6000).
%% While the code of all modules is listed, or a system_monitor is set, the VM stands still: neither is done where a scheduler does not
%% answer within this time.
-define(PROBE_NS, 100000000).
-define(MAX_MODULES, 100000).
%% How many processes a request may name, and how many can be chosen by chance.
-define(MAX_NAMED, 1000).
-define(MAX_CHOSEN, 100000).
-define(MOST_LARGEST, 250).
%% Of chosen ones, a hash of so many values decides.
-define(CHANCES, 134217728).
%% What one process may take to tell its binaries, how many of all of them are told apart, and what one collection is waited for.
-define(HELD_NS, 2000000000).
-define(MAX_BINARIES, 500000).
-define(COLLECTED_MS, 1000).
%% Blocks that are freed by another scheduler than the one that they belong to are counted until that one has taken them back.
-define(FREED_MS, 100).
%% Locks are counted for so long at least, at most, and where nobody says for how long. With it, the item may take this long.
-define(LEAST_COUNTED_MS, 100).
-define(MOST_COUNTED_MS, 600000).
-define(COUNTED_MS, 5000).
-define(MOST_LOCKS_MS, 720000).
%% There is one set of counters and one mask for all: who counts has this name, in every version.
-define(COUNTS_LOCKS, beamtune_counts_locks).
%% How long the agent waits, when its module is about to be purged, until the mask is back; and a collector, when its time is over.
-define(MASK_MS, 5000).
-define(MASK_LATE_MS, 1000).
%% The counts of more locks than these are added up at priority normal: of so many it takes some 10 ms.
-define(LOCKS_AT_ONCE, 5000).
%% Words of the counts of a lock, and of each place in the source in which it was taken: of these there are one to five, and one only for
%% a lock that was taken nowhere. Then, what adding a lock up leaves behind, about.
-define(WORDS_OF_LOCK, 7).
-define(WORDS_OF_PLACE, 48).
-define(LEFT_OF_LOCK, 16).
%% When it builds them, the VM takes all numbers for large ones, which makes 118 words of a place. What it does not use of that is
%% address space only. Room for a lock, and for one of a process, most of which do next to nothing; then, in how many words they end.
-define(LOCK_ROOM, 400).
-define(PROCESS_LOCK_ROOM, 200).
-define(LOCK_WORDS, 150).
-define(PROCESS_LOCK_WORDS, 80).
%% What the VM takes for each lock that is counted. Of more processes than these, that is not put back where it was given up.
-define(COUNTED_LOCK_BYTES, 1000).
-define(PROCESSES_PUT_BACK, 8000).
%% erl_process_lock.h: main, message queue, timers, status, trace.
-define(LOCKS_OF_PROCESS, 5).
%% Those of a port, a socket, a table, a table with write_concurrency besides (with `auto', to begin with), a node; those of the VM itself.
-define(LOCKS_OF_PORT, 3).
-define(LOCKS_OF_SOCKET, 2).
-define(LOCKS_OF_TABLE, 2).
-define(SLOTS_OF_TABLE, 64).
-define(LOCKS_OF_NODE, 3).
-define(LOCKS_OF_VM, 1000).
-define(LOCKS_OF_SCHEDULER, 10).
%% Those that the locks of all processes share, pix_lock.
-define(LOCKS_FOR_PROCESSES, 1024).
%% Of more tables than these, those are taken for all.
-define(LOOKED_AT_TABLES, 10000).
%% Places in the source, of all classes: as many as rows have room. For each: locks, tries, collisions, microseconds, waits, histogram.
-define(MAX_PLACES, 4000).
-define(BINS, 30).
-define(CELLS, (5 + ?BINS)).
-define(MAX_LOCK_ROWS, 5000).
%% Of what room there is for single locks, so many thousandths are theirs at most, the rest is for those that they stand out of.
-define(SINGLES_PERMILLE, 800).
%% An instance with more carriers than these is not walked: each is 270 bytes of the answer.
-define(MAX_CARRIERS, 100000).
-define(MAX_CARRIER_ROWS, 2000).
%% Histograms: how many sizes, and the first bound that the VM is given.
-define(FREE_SIZES, 14).
-define(FREE_START, 512).
-define(TAGGED_SIZES, 24).
-define(TAGGED_START, 128).
%% A process dictionary is read (on releases that cannot read one key of it) only of processes whose whole
%% heap is at most this large, because reading copies all of it.
-define(DICTIONARY_HEAP_WORDS, 131072).
%% Where processes stand: of how many at least, for how much of the budget (per cent; the item is read each 10 s), what one costs
%% (it is woken, and answers twice), how deep, for how many kinds of places, and how many others each may wait for.
-define(LEAST_STANDS, 20).
-define(STANDS_SHARE, 10).
-define(STAND_US, 20).
-define(STAND_DEPTH, 8).
-define(STAND_ROWS, 20).
-define(STAND_CHUNKS, 10).
-define(MOST_ON, 8).
-define(MOST_WANTED, 5).
%% Who has more connections than these serves many, and waits for none of them.
-define(MOST_PEERS, 3).
%% With more beside its heap a process has long lists of monitors or links, which are not read (a monitor takes some 100 bytes).
-define(FEW_MONITORS_BYTES, 16384).
%% Beside its heap a process has so much for each message that waits (measured, OTP 23 to 29).
-define(MESSAGE_HEAD_BYTES, 88).
%% Where those that do the most stand: of how many in each sample; how many are remembered, and how many stacks of each are told.
-define(RAN, 5).
-define(RAN_KNOWN, 100).
-define(RAN_STACKS, 8).
%% Messages as they come: to how many processes at most, and at least; for how much of the budget (per cent), what the looks at one
%% cost; the pauses between two looks; how many receivers are told, and remembered until then. What is seen is what a receiver has not
%% taken at the moment of a look, so there are some looks, with so little between them that it has taken nothing else.
-define(MOST_RECEIVERS, 60).
-define(LEAST_RECEIVERS, 10).
-define(RECEIVERS_SHARE, 5).
-define(RECEIVER_US, 8).
-define(RECEIVER_PAUSES_MS, [1, 1, 1, 1]).
-define(RECEIVER_ROWS, 20).
-define(RECEIVERS_KNOWN, 500).

%% One sample under way.
-record(run, {seq, items, done = [], timeout_ms, timer, begin_ns, item_ns, timeouts = 0}).

-record(client, {pid, monitor, session, lease_ms, budget_ppm, seen_ms, collector, run = idle, last_ns, restarts = 0,
                 dropped = 0}).

%% ours: atomics, 1 while microstate accounting is on because of us.
-record(agent, {keeper, keeper_monitor, msacc_was_on, ours, watcher = none, filer = none, clients = #{}}).

%%% The agent process: clients, leases, time limits ---------------------------------------------------------

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

handle({item, Collector, Result}, Agent) ->
    with_collector(Collector, Agent, fun(C) -> item_done(Result, C) end);
handle({finished, Collector, Cost}, Agent) ->
    with_collector(Collector, Agent, fun(C) -> finish(Cost, C, Agent) end);
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

%% The client must be a known one, else the message is dropped.
with_client(Pid, #agent{clients = Clients} = Agent, Fun) ->
    case Clients of
        #{Pid := Client} -> Agent#agent{clients = Clients#{Pid := Fun(Client)}};
        _ -> Agent
    end.

%% Messages of a collector that was given up are dropped.
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
    %% A client's session is linked to it since before it ran its first instruction, and ends with it; the keeper stays,
    %% and says `gone'. The client itself is never monitored: that could open a connection to a node that is gone.
    Client = #client{pid = Pid, monitor = monitor(process, Session), session = Session, lease_ms = Lease,
                     budget_ppm = Budget, seen_ms = now_ms(), last_ns = now_ns() - ?FIRST_INTERVAL_NS,
                     collector = start_collector(Budget)},
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

%% Forgets a client. The agent ends with its last one.
drop(Pid, Why, #agent{clients = Clients} = Agent) ->
    case maps:take(Pid, Clients) of
        {#client{collector = Collector, monitor = Monitor, session = Session}, Rest} ->
            demonitor(Monitor, [flush]),
            exit(Collector, kill),
            Session ! {left, self()},
            map_size(Rest) =:= 0 andalso exit({beamtune, Why}),
            Agent#agent{clients = Rest};
        error -> Agent
    end.

%% The keeper was killed. Nobody else is left to clean up, so the agent does what it can from inside: the switch,
%% and a purge that ends this very process (and its collectors) as users of old code.
-spec orphaned(#agent{}) -> no_return().
orphaned(#agent{ours = Ours}) ->
    atomics:get(Ours, 1) =:= 1 andalso erlang:system_flag(microstate_accounting, false),
    Purge = case mask_is_back() of
                true -> purge;
                %% Only when nobody runs it any more.
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

%% Hands the items that are left to the collector.
run(#run{items = Items, timeout_ms = Timeout} = Run, Client,
    #agent{clients = Clients, keeper = Keeper, watcher = Watcher, filer = Filer}) ->
    #client{collector = Collector, last_ns = Last} = Client,
    Own = [self(), Keeper, Watcher, Collector | [C || #client{collector = C} <- maps:values(Clients)]]
        ++ [Pid || {Pid, _} <- [Filer]],
    Collector ! {run, Items, #{keeper => Keeper, watcher => Watcher, filer => Filer, own => Own, timeout_ms => Timeout,
                               interval_ns => Run#run.begin_ns - Last}},
    next_item(Run, Client).

next_item(#run{items = Items, timeout_ms = Timeout} = Run, #client{pid = Pid} = Client) ->
    Ms = case [limit_ms(Item) || Item <- lists:sublist(Items, 1)] of
             [Limit] when is_integer(Limit) -> max(Timeout, Limit + ?GRACE_MS);
             _ -> Timeout
         end,
    Client#client{run = Run#run{item_ns = now_ns(), timer = erlang:start_timer(Ms, self(), {item, Pid})}}.

stop_timer(#run{timer = Timer}) ->
    erlang:cancel_timer(Timer, [{async, true}, {info, false}]).

item_done(Result, #client{run = #run{items = [_ | Items], done = Done} = Run} = Client) ->
    stop_timer(Run),
    next_item(Run#run{items = Items, done = [Result | Done]}, Client);
item_done(_, Client) ->
    Client.

item_timeout(Timer, #client{run = #run{timer = Timer, items = Items, item_ns = Begin}} = Client, Agent) ->
    exit(Client#client.collector, kill),
    go_on([{item_name(I), timeout, Begin, (now_ns() - Begin) div 1000, #{}} || I <- lists:sublist(Items, 1)], Client, Agent);
item_timeout(_, Client, _) ->
    Client.

%% After a lost collector: the rest of the items, unless this is the second one lost in one sample, when it is likely that
%% a whole scheduler is stuck and each further item would wait for it too.
go_on(Lost, #client{run = #run{items = Items, done = Done, timeouts = Timeouts} = Run} = Client, Agent) ->
    stop_timer(Run),
    Fresh = Client#client{collector = start_collector(Client#client.budget_ppm), restarts = Client#client.restarts + 1},
    case lists:nthtail(length(Lost), Items) of
        [_ | _] = Rest when Timeouts =:= 0 ->
            run(Run#run{items = Rest, done = Lost ++ Done, timeouts = 1}, Fresh, Agent);
        Rest ->
            Skipped = [{item_name(Item), skipped, now_ns(), 0, #{}} || Item <- Rest],
            finish(#{}, Fresh#client{run = Run#run{items = [], done = lists:reverse(Skipped, Lost ++ Done)}}, Agent)
    end.

%% Watcher and filer, the two that serve all clients, where one asks for what they do.
start_services(Items, Agent) when length(Items) =< ?MAX_ITEMS ->
    Names = [item_name(Item) || Item <- Items],
    start_filer(lists:member(host, Names), start_watcher(lists:member(events, Names), Agent));
start_services(_, Agent) -> Agent.

%% A watcher, a filer or a collector of ours ended by itself: somebody killed it. Any other exit signal is an order to end.
collector_ended(Pid, _, #agent{watcher = Pid} = Agent) ->
    Agent#agent{watcher = none};
collector_ended(Pid, _, #agent{filer = {Pid, _}} = Agent) ->
    Agent#agent{filer = none};
collector_ended(Pid, Reason, #agent{clients = Clients} = Agent) ->
    case [C || #client{collector = P} = C <- maps:values(Clients), P =:= Pid] of
        [#client{run = idle, budget_ppm = Budget, restarts = Restarts} = Client] ->
            Fresh = Client#client{collector = start_collector(Budget), restarts = Restarts + 1},
            Agent#agent{clients = Clients#{Client#client.pid := Fresh}};
        [#client{run = #run{items = Items}} = Client] ->
            Lost = [{item_name(Item), error, now_ns(), 0, text({collector_ended, Reason})}
                    || Item <- lists:sublist(Items, 1)],
            Agent#agent{clients = Clients#{Client#client.pid := go_on(Lost, Client, Agent)}};
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

%% Never waits for the network, never opens a connection.
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

%%% The collector and its reader ------------------------------------------------------------------------------

%% Where the scan of one kind of things (processes, tables, ports) stands. A round passes through all of them; it is done
%% in parts, one per request, when it would exceed the budget. `alive' are those that answered in the last whole round:
%% while the VM counts as many, there are no new ones, and the list is used again (making it walks the whole table, which
%% has a million slots by default since OTP 27: 1 to 2 ms).
-record(round, {number = 0, part = 0, rest = [], list = [], total = 0, scanned = 0, dead = 0, alive = none, size = 64,
                cost_ns, read_ns = none}).

%% procs: the list of processes, and what their reductions were when they were visited last.
-record(procs, {round = #round{cost_ns = 300},
                seen = none,                  % the part under way, if it is done between samples
                left = 0, pause_ms = infinity, step_ns = 0,  % how many it may read yet, and after which pause; time it took
                listed_ns,                    % when the last book was made
                books = [],                   % the tables in use
                top = 20,                     % how many are to be told
                watched = #{},                % in parts: the top ones, asked in each sample: Pid => reductions
                told = #{}, told_before = #{},% those not watched any more, in this round and the one before: the same
                counters = none,              % reductions by place in the list (atomics); -1: not known
                marks = [],                   % {place, time} at the end of each part of this round, latest first
                %% Of a round with another list than the round before had:
                old = same, old_place = 1,    % the old list from the first one not yet matched; its place
                old_list = [],                % all of it
                old_counters = none,          % `none' in the very first round
                old_marks = [],               % when the round before visited its places, first ones first
                %% For the other items:
                active = {0, []},             % how many processes of the node did something, about; some of them
                new = 0, origins = #{}, sampled = 0,  % new processes and who made some of them, since `spawns' was read
                most = [],                    % those that did the most when they were last read, these first
                busy = #{}, queued = #{}}).   % the top ones since `processes' was read: Pid => sum, Pid => max

-record(state, {agent, keeper, watcher = none, last_event = 0, filer = none, files = none, budget_ppm, features, own = [],
                timeout_ms = 2000, interval_ns = 1000000000, deadline_ns = 0, spawned = {0, narrow},
                atoms,                        % how many there were when `atoms' was read, at first when we began
                scan_ns = 0, paused_ns = 0, rested_ns, accounted_ns,
                %% Lists that are made beside: the one being made and by whom, those that come after it, and books not begun yet.
                listing = none, to_list = [], listed = #{},
                procs = #procs{},
                heaps = #round{cost_ns = 500}, large = #{}, vheap = 0,
                %% Whom `stands' has found that others wait for, and who got the heaviest ones of `messages', until `processes' is read.
                waited_for = [], received = [],
                %% Where those that did the most ran since `processes' was read, and where they stood while they waited in the midst of
                %% something: Pid => #{{ran | stood, stack} => how often}.
                ran = #{},
                %% What `weigh' has found since `messages' was read: {how many did something, how many of them were looked at,
                %% microseconds}, and {Pid, size} => {messages, words}.
                weighed = {0, 0, 0}, came = #{},
                tables = #round{cost_ns = 1000}, large_tables = #{},
                ports = #round{cost_ns = 3000}, traffic = #{}, old_traffic = none}).

start_collector(Budget) ->
    Agent = self(),
    spawn_opt(fun() -> collector(Agent, Budget) end, [link, {priority, high}, {fullsweep_after, 20}]).

collector(Agent, Budget) ->
    try
        start_reader(),
        collect(#state{agent = Agent, budget_ppm = Budget, features = features(), own = [self()],
                       atoms = erlang:system_info(atom_count), accounted_ns = now_ns() - ?FIRST_INTERVAL_NS})
    catch
        Class:Reason:Stack -> exit({collector_failed, text({Class, Reason, Stack})})
    end.

collect(#state{procs = #procs{pause_ms = Pause}, listing = Listing} = State) ->
    receive
        {run, Items, #{keeper := Keeper, watcher := Watcher, filer := Filer, own := Own, timeout_ms := Timeout,
                       interval_ns := Interval}} ->
            {Reader, _} = get(reader),
            Done = lists:foldl(fun collect_item/2,
                               State#state{keeper = Keeper, watcher = Watcher, filer = Filer, own = [Reader | Own],
                                           timeout_ms = Timeout, interval_ns = Interval, rested_ns = now_ns()},
                               Items),
            [{_, Reductions}, {_, Memory}] = process_info(self(), [reductions, memory]),
            {ReaderReductions, ReaderMemory} =
                case read_all(fun(P, _) -> process_info(P, [reductions, memory]) end, [element(1, get(reader))]) of
                    [[{_, R}, {_, M}]] -> {R, M};
                    %% It was held up for so long, by itself, that another one has taken its place.
                    _ -> {0, 0}
                end,
            State#state.agent ! {finished, self(), #{reductions => Reductions + ReaderReductions,
                                                     memory => Memory + ReaderMemory,
                                                     scan_us => Done#state.scan_ns div 1000}},
            collect(start_listing(Done#state{scan_ns = 0}));
        {listed, Lister, Table, Total} when Lister =:= element(2, Listing) ->
            collect(listed(Lister, Table, Total, State));
        {files, Number, _} ->
            collect(came_late(Number, State));
        _ ->
            collect(State)
    after Pause ->
        collect(step(State))
    end.

collect_item(Item, #state{agent = Agent, timeout_ms = Timeout} = State) ->
    Begin = now_ns(),
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
    Agent ! {item, self(), {Name, Status, Begin, Read div 1000, Value}},
    rest(Next).

%% Lets others come in after some work.
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

%% The collector keeps its reader, and what to leave out because it hung one, in its process dictionary.
start_reader() ->
    Cursor = atomics:new(1, []),
    put(reader, {spawn_opt(fun() -> reader(Cursor) end, [link, {priority, high}, {fullsweep_after, 20}]), Cursor}).

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

%% What Fun gives for each element and its place in the list; `hung' for those that are left out, and for all when a second
%% one hangs (each costs time). Fun runs in the reader: what it refers to is copied.
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
    after ?LOOK_MS ->
        case atomics:get(Cursor, 1) of
            Before when Before > 0 -> {hangs, Before};
            At -> await(Reader, Cursor, At)
        end
    end.

%% [{what, since when}]
left_out() ->
    case get(left_out) of
        [_ | _] = Skip ->
            Now = now_ns(),
            Left = [S || {_, Since} = S <- Skip, Since + ?SKIP_NS > Now],
            put(left_out, Left),
            Left;
        _ -> []
    end.

%% What this release can do, found by trying it on ourselves.
features() ->
    Asks = [{parent, fun() -> process_info(self(), parent) end},
            {label, fun() -> process_info(self(), label) end},
            {dictionary_item, fun() -> process_info(self(), {dictionary, at}) end}],
    [F || {F, Ask} <- Asks, try Ask() of _ -> true catch error:_ -> false end].

%%% Items ---------------------------------------------------------------------------------------------------

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
    %% Of statistics(wall_clock) somebody else may want to know how much it is since the last call.
    Wall = erlang:convert_time_unit(erlang:monotonic_time() - erlang:system_info(start_time), native, millisecond),
    #{reductions => Reductions, gc_count => Gcs, gc_reclaimed_words => Words, io_in_bytes => In,
      io_out_bytes => Out, context_switches => Switches, runtime_ms => Runtime, wall_ms => Wall};
read(memory, _, _) ->
    try maps:from_list(erlang:memory()) catch error:notsup -> throw(unsupported) end;
read(counts, _, #state{spawned = Before} = State) ->
    Processes = erlang:system_info(process_count),
    Counts = #{processes => Processes, ports => erlang:system_info(port_count),
               atoms => erlang:system_info(atom_count), ets => erlang:system_info(ets_count)},
    %% Where there is no place for it, the VM would tell the log of it.
    case erlang:system_info(process_limit) - Processes of
        Free when Free < ?FREE_PLACES -> {Counts, State};
        _ ->
            Spawned = spawned(spawn(fun() -> ok end), Before),
            {Counts#{spawned => element(1, Spawned)}, State#state{spawned = Spawned}}
    end;
read(check_io, _, _) -> check_io();
read(procs, Params, State) -> procs(bounded(top, Params, 1, 20, 100), State);
read(processes, Params, State) -> processes(bounded(top, Params, 1, 10, 50), State);
read(spawns, _, State) -> spawns(State);
read(atoms, _, State) -> atoms(State);
read(ran, _, State) -> ran(State);
read(weigh, _, State) -> weigh(State);
read(messages, _, State) -> messages(State);
read(stands, Params, State) -> stands(bounded(sample, Params, 1, 200, 1000), State);
read(ets, Params, State) -> tables(bounded(top, Params, 1, 10, 50), State);
read(ports, Params, State) -> ports(bounded(top, Params, 1, 10, 50), State);
read(dist, _, State) -> dist(State);
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

%% How many processes the VM has started, by the pid of a new one. The slots of the process table are given out in turn, and each
%% makes its number higher by the size of the table when it is used again: so the number of a new pid grows by one for each process
%% that is started, and by one for each slot that is passed over because its process is alive. A slot that was held for long has a
%% lower number than its neighbours: the highest one counts. A pid consists of two parts, of which the first one has 15 bits, or 28
%% where numbers of 60 bits have replaced those of 28.
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

%% The keeper has accounting on for a part of the time; each sample asks for the next one. Between them the counters stand
%% still.
msacc(#state{keeper = Keeper, accounted_ns = Last} = State) ->
    Now = now_ns(),
    Keeper ! {account, max(1, min(60000, (Now - Last) div 1000000))},
    case erlang:statistics(microstate_accounting) of
        undefined -> throw(unsupported);
        [#{counters := First} | _] = Threads ->
            States = maps:keys(First),
            {#{states => States,
               threads => [{Type, Id, [maps:get(S, Counters) || S <- States]}
                           || #{type := Type, id := Id, counters := Counters} <- Threads]},
             State#state{accounted_ns = Now}}
    end.

check_io() ->
    Sets = erlang:system_info(check_io),
    Get = fun(Key, Set) -> proplists:get_value(Key, Set, 0) end,
    #{max_fds => lists:max([Get(max_fds, S) || S <- Sets]),
      pollsets => [{bin(Get(primary, S)), Get(fallback, S) =:= true, Get(poll_threads, S),
                    Get(total_poll_set_size, S), Get(active_fds, S), Get(pending_updates, S),
                    Get(memory_size, S)} || S <- Sets]}.

%%% Events: what the VM tells by itself -----------------------------------------------------------------------

start_watcher(true, #agent{watcher = none} = Agent) ->
    Agent#agent{watcher = spawn_opt(fun() -> watcher() end, [link, {priority, high}])};
start_watcher(_, Agent) -> Agent.

%% how: `monitor' (the VM's only system_monitor, taken because nobody had it), {taken, by whom}, or `paused' in a flood. What is
%% set ends with this process, by the VM itself.
%%
%% From OTP 28 on a trace session could be ours alone (trace:system/3). It is not, because its end takes the VM's lock for changing
%% code. On OTP 29.1.2 that lock may stay taken for ever when several want it at once: then nobody can load or purge code any more
%% (the purger and who loads stay suspended). agent/README.md has what was tried.
-record(events, {how, since_ms = 0, told = #{}, rows = [], last = 0, in_window = 0, window_ms = 0, floods = 0, pause_ms = ?PAUSE_MS, flood_ms = none}).

watcher() -> watcher(begin_watching(#events{})).

%% Whenever a system_monitor is set, all schedulers come to rest: with one that is inside a long NIF all others would wait for that, so
%% they are asked before.
begin_watching(Events) ->
    case erlang:system_monitor() of
        undefined ->
            case schedulers_answer() of
                true -> unless_anothers(erlang:system_monitor(self(), ?EVENTS), Events, fun() -> Events#events{how = monitor, since_ms = now_ms()} end);
                %% By chance, since a job that comes each second would be met each time.
                false -> later(?BUSY_MS + erlang:phash2(erlang:monotonic_time(), ?BUSY_MS), paused, Events)
            end;
        {Owner, _} when Owner =:= self() -> Events#events{how = monitor};
        {Owner, _} -> later(?TRY_AGAIN_MS, {taken, Owner}, Events)
    end.

later(Ms, How, Events) ->
    erlang:start_timer(Ms, self(), again),
    Events#events{how = How}.

%% What stood there a moment ago is somebody else's, if he has come in between: it stands there again.
unless_anothers({Owner, Options}, Events, _) when Owner =/= self() ->
    erlang:system_monitor(Owner, Options),
    later(?TRY_AGAIN_MS, {taken, Owner}, Events);
unless_anothers(_, _, Then) -> Then().

%% For a second, and twice as long each time as long as floods follow each other.
pause_watching(#events{floods = Floods, flood_ms = Last, pause_ms = Before} = Events) ->
    Now = now_ms(),
    Ms = case is_integer(Last) andalso Now - Last < 2 * Before of
             true -> min(?MOST_PAUSE_MS, 2 * Before);
             false -> ?PAUSE_MS
         end,
    Flooded = Events#events{floods = Floods + 1, flood_ms = Now + Ms, pause_ms = Ms},
    case erlang:system_monitor() of
        {Owner, _} when Owner =:= self() ->
            case schedulers_answer() of
                true -> unless_anothers(erlang:system_monitor(undefined), Flooded, fun() -> later(Ms, paused, Flooded) end);
                %% Tried again with the next so many.
                false -> Events#events{in_window = 0, window_ms = Now}
            end;
        _ -> later(Ms, paused, Flooded)
    end.

watcher(Events) ->
    receive
        {monitor, Subject, Kind, Info} -> watcher(happened(Kind, Subject, Info, Events));
        {events, From, Since} ->
            #events{how = How, told = Told, rows = Rows, last = Last, floods = Floods} = Now = still_ours(Events),
            From ! {self(), How, Floods, Told, [R || {Number, _} = R <- Rows, Number > Since], Last},
            watcher(Now);
        {timeout, _, again} when element(1, Events#events.how) =:= taken; Events#events.how =:= paused ->
            watcher(begin_watching(Events));
        _ -> watcher(Events)
    end.

%% Somebody may have put his own in our place.
still_ours(#events{how = monitor} = Events) -> begin_watching(Events);
still_ours(Events) -> Events.

%% Of a collection that had begun before it was asked to tell, the VM tells the time since its own start (garbage_collect in erl_gc.c; on a
%% dirty scheduler one goes on meanwhile).
happened(long_gc, Subject, [{timeout, Ms} | _] = Info, #events{since_ms = Since} = Events) ->
    case now_ms() - Since of
        Watched when Ms > Watched + 1 -> Events;
        _ -> add_event(long_gc, Subject, Info, Events)
    end;
happened(Kind, Subject, Info, Events) -> add_event(Kind, Subject, Info, Events).

add_event(Kind, Subject, Info, #events{told = Told, rows = Rows, last = Last} = Events) ->
    {Count, Sum} = maps:get(Kind, Told, {0, 0}),
    Value = event_value(Kind, Info),
    Row = {Last + 1, {Kind, now_ns(), Subject, Value, Info}},
    flood(Events#events{told = Told#{Kind => {Count + 1, Sum + Value}}, last = Last + 1,
                        rows = lists:sublist([Row | Rows], ?EVENTS_KEPT)}).

flood(#events{how = paused} = Events) -> Events;
flood(#events{in_window = Count, window_ms = Begin} = Events) ->
    case now_ms() of
        Now when Now - Begin > ?FLOOD_MS -> Events#events{in_window = 1, window_ms = Now};
        _ when Count < ?FLOOD -> Events#events{in_window = Count + 1};
        _ -> pause_watching(Events)
    end.

%% Milliseconds, or bytes of heap; 0 where it has none.
event_value(large_heap, Info) -> event_heap(Info);
event_value(_, [{timeout, Ms} | _]) -> Ms;
event_value(_, _) -> 0.

event_heap(Info) ->
    erlang:system_info(wordsize)
        * lists:sum([proplists:get_value(K, Info, 0) || K <- [old_heap_block_size, heap_block_size, mbuf_size]]).

events(#state{watcher = Watcher, last_event = Since, features = Features, timeout_ms = Timeout} = State) when is_pid(Watcher) ->
    Watcher ! {events, self(), Since},
    receive
        {Watcher, How, Floods, Told, Rows, Last} ->
            Find = fun(Row) -> event_row(Row, Features) end,
            Described = details(Find, lists:reverse(Rows), State),
            Value = #{how => case How of {taken, _} -> taken; _ -> How end, floods => Floods,
                      counts => [{Kind, Count, Sum} || {Kind, {Count, Sum}} <- maps:to_list(Told)],
                      lost => Last - Since - length(Rows),
                      rows => [Row || {_, Row} <- Described]},
            {case How of
                 {taken, Owner} ->
                     [OwnerRow] = read_all(fun(Pid, _) -> owner(Pid, Features) end, [Owner]),
                     case OwnerRow of #{} -> maps:merge(Value, OwnerRow); _ -> Value#{owner => id(Owner)} end;
                 _ -> Value
             end, State#state{last_event = Last}}
    after Timeout div 2 -> error(no_answer)
    end;
events(_) ->
    throw(unsupported).

event_row({_, {Kind, At, Subject, Value, Info}}, Features) ->
    Row = #{kind => Kind, at_ns => At, subject => id(Subject), value => Value},
    Of = case Kind of
             long_schedule -> #{in => mfa(proplists:get_value(in, Info)), out => mfa(proplists:get_value(out, Info))};
             long_gc -> #{heap_bytes => event_heap(Info)};
             busy_port when is_port(Info) -> port_of(Info);
             busy_dist_port when is_port(Info); is_pid(Info) -> #{port => id(Info), node => node_of(Info)};
             _ -> #{}
         end,
    Who = case is_pid(Subject) andalso identity(Subject, Features) of
              #{} = Identity -> maps:with([name, label, call], Identity);
              _ -> #{}
          end,
    maps:merge(Row, maps:merge(Of, Who)).

port_of(Port) ->
    case erlang:port_info(Port, name) of
        {_, Name} -> #{port => id(Port), port_kind => kind(Name)};
        undefined -> #{port => id(Port)}
    end.

node_of(Controller) ->
    case lists:keyfind(Controller, 2, erlang:system_info(dist_ctrl)) of
        {Node, _} -> bin(Node);
        false -> <<>>
    end.

%%% Files of the node's host, for a client on another one ----------------------------------------------------

%% All that is ever read beside what is below the process's own task folder, and below the control groups' mounts.
%% Everything else is refused, whoever asks. The environment, the command line and the memory of a process are not among
%% them, nor is any other process.
-define(HOST_FILES, [<<"/proc/stat">>, <<"/proc/meminfo">>, <<"/proc/vmstat">>, <<"/proc/cpuinfo">>,
                     <<"/proc/pressure/cpu">>, <<"/proc/pressure/memory">>, <<"/proc/pressure/io">>,
                     <<"/proc/sys/kernel/hostname">>, <<"/proc/sys/kernel/osrelease">>,
                     <<"/proc/sys/kernel/random/boot_id">>,
                     <<"/proc/self/stat">>, <<"/proc/self/status">>, <<"/proc/self/limits">>, <<"/proc/self/cgroup">>,
                     <<"/proc/self/mountinfo">>, <<"/proc/self/smaps_rollup">>]).
%% These can have megabytes: a line for each mount, a page for each CPU. The others hold what the kernel has to say of one
%% thing, and are read in one call. To open, read and close would be three, each of which goes to another scheduler and back
%% (milliseconds where the CPUs are short), and each file that is opened is monitored by the VM, by a signal to a process that
%% runs on a dirty scheduler just then: the process that takes such signals was the busiest one of an idle node.
-define(LONG_FILES, [<<"/proc/cpuinfo">>, <<"/proc/self/mountinfo">>]).
-define(HOST_LINKS, [<<"/proc/self/ns/cgroup">>]).
-define(HOST_FOLDERS, [<<"/proc/self/fd">>]).
-define(GROUP_FILES, [<<"cpu.max">>, <<"cpu.stat">>, <<"cpu.weight">>, <<"cpu.pressure">>, <<"memory.pressure">>,
                      <<"io.pressure">>, <<"memory.max">>, <<"memory.current">>, <<"cgroup.controllers">>,
                      <<"cpu.cfs_quota_us">>, <<"cpu.cfs_period_us">>, <<"cpu.shares">>, <<"cpuacct.usage">>,
                      <<"memory.limit_in_bytes">>, <<"memory.usage_in_bytes">>, <<"cgroup.clone_children">>]).

is_allowed({read, Path, Max}) ->
    is_integer(Max) andalso Max > 0 andalso (lists:member(Path, ?HOST_FILES) orelse is_group_file(Path));
is_allowed({link, Path}) -> lists:member(Path, ?HOST_LINKS);
is_allowed({count, Path}) -> lists:member(Path, ?HOST_FOLDERS);
is_allowed({threads, _, _}) -> true;
is_allowed(_) -> false.

is_group_file(Path) when is_binary(Path), byte_size(Path) =< 4096 ->
    Parts = binary:split(Path, <<"/">>, [global]),
    lists:prefix([<<>>, <<"sys">>, <<"fs">>, <<"cgroup">>], Parts)
        andalso lists:member(lists:last(Parts), ?GROUP_FILES)
        andalso not lists:any(fun(Part) -> lists:member(Part, [<<>>, <<".">>, <<"..">>]) end, tl(Parts))
        andalso binary:match(Path, <<0>>) =:= nomatch;
is_group_file(_) -> false.

%% What a collector knows of its filer: the request that is not answered yet, since when, and which thread's turn it is.
-record(files, {number = none, asks = [], since_ns, filer, thread = 0}).

%% A read that hangs (a FUSE file system over /proc whose server is stuck, a lock of the kernel) cannot be ended: it keeps its
%% process, and one of the VM's dirty I/O schedulers. So there is one process that reads, which is never replaced while it
%% lives, and which nobody waits for longer than for any item.
start_filer(true, #agent{filer = none} = Agent) ->
    Cursor = atomics:new(2, []),
    Filer = spawn_opt(fun() -> filer(Cursor, []) end, [link, {priority, high}, {fullsweep_after, 20}]),
    Agent#agent{filer = {Filer, Cursor}};
start_filer(_, Agent) -> Agent.

host(Params, #state{files = none} = State) -> host(Params, State#state{files = #files{}});
host(#{ask := Asks}, #state{filer = {Filer, Cursor}, files = Files} = State) when length(Asks) =< ?MAX_ASKS ->
    os:type() =:= {unix, linux} orelse throw(unsupported),
    case Files of
        #files{number = Number, filer = Filer} when Number =/= none ->
            {#{told => hung(Asks, Files, Cursor)}, State};
        _ ->
            Number = erlang:unique_integer([positive]),
            Now = now_ns(),
            Filer ! {files, self(), Number, [with_quota(Ask, Files, State) || Ask <- Asks], State#state.deadline_ns},
            Asked = Files#files{number = Number, asks = Asks, since_ns = Now, filer = Filer},
            receive
                {files, Number, Told} ->
                    {#{told => Told}, State#state{files = answered(next_thread(Told, Asked))}}
            after (State#state.deadline_ns - Now) div 1000000 + ?LOOK_MS ->
                {#{told => hung(Asks, Asked, Cursor)}, State#state{files = Asked}}
            end
    end.

%% What hangs is named where it is known, and where it is not only slow, as all is on a machine that is short of CPUs; all others
%% wait for it.
hung(Asks, #files{number = Number, asks = Before, since_ns = Since}, Cursor) ->
    Hanging = case atomics:get(Cursor, 2) =:= Number andalso now_ns() - Since > ?HANG_NS of
                  true -> lists:sublist(Before, max(1, atomics:get(Cursor, 1)), 1);
                  false -> []
              end,
    [{error, case [Ask] of Hanging -> hung; _ -> late end} || Ask <- Asks].

came_late(Number, #state{files = #files{number = Number} = Files} = State) -> State#state{files = answered(Files)};
came_late(_, State) -> State.

answered(Files) -> Files#files{number = none, asks = []}.

%% How many threads, and from which one on.
with_quota(threads, #files{thread = From}, #state{budget_ppm = Budget, interval_ns = Interval}) ->
    {threads, max(1, Interval * Budget * ?THREADS_SHARE div (100 * 1000000 * ?THREAD_NS)), From};
with_quota(all_threads, #files{thread = From}, _) -> {threads, ?MAX_THREADS, From};
with_quota({threads, _, _}, _, _) -> refused;
with_quota(Ask, _, _) -> Ask.

next_thread(Told, Files) ->
    case [Tid || {threads, _, [_ | _] = Read} <- Told, {Tid, _, _, _} <- [lists:last(Read)]] of
        [] -> Files;
        Tids -> Files#files{thread = lists:last(Tids) + 1}
    end.

%% LeftOut: [{Ask, since when}].
filer(Cursor, LeftOut) ->
    receive
        {files, Collector, Number, Asks, Until} ->
            atomics:put(Cursor, 1, 0),
            atomics:put(Cursor, 2, Number),
            {Told, Slow} = read_files(Asks, 1, Until, ?MAX_FILES_BYTES, Cursor, LeftOut),
            atomics:put(Cursor, 2, 0),
            Collector ! {files, Number, Told},
            Now = now_ns(),
            filer(Cursor, lists:sublist([S || {_, Since} = S <- Slow, Since + ?SKIP_NS > Now], ?MAX_SKIPPED))
    end.

read_files([], _, _, _, _, LeftOut) -> {[], LeftOut};
read_files([Ask | Asks], Index, Until, BytesLeft, Cursor, LeftOut) ->
    atomics:put(Cursor, 1, Index),
    Begin = now_ns(),
    Told = case is_allowed(Ask) of
               false -> {error, refused};
               true ->
                   case lists:keymember(Ask, 1, LeftOut) of
                       true -> {error, hung};
                       false when Begin > Until; BytesLeft =< 0 -> {error, late};
                       false -> try read_ask(Ask, Until) catch _:_ -> {error, failed} end
                   end
           end,
    Took = now_ns() - Begin,
    Slow = case Took > ?HANG_NS of true -> [{Ask, Begin + Took} | LeftOut]; false -> LeftOut end,
    {Rest, AllSlow} = read_files(Asks, Index + 1, Until, BytesLeft - told_bytes(Told), Cursor, Slow),
    {[Told | Rest], AllSlow}.

told_bytes({_, Bytes}) when is_binary(Bytes) -> byte_size(Bytes);
told_bytes(_) -> 0.

read_ask({read, Path, Most}, _) ->
    Max = min(Most, ?MAX_FILE_BYTES),
    Read = case {lists:member(Path, ?LONG_FILES), lists:member(Path, ?HOST_FILES)} of
               {true, _} -> read_start(Path, Max + 1);
               {false, true} -> prim_file:read_file(Path);
               {false, false} -> read_group_file(Path)
           end,
    case Read of
        {ok, Bytes} when byte_size(Bytes) > Max -> {cut, binary:part(Bytes, 0, Max)};
        Told -> Told
    end;
read_ask({link, Path}, _) ->
    case prim_file:read_link(Path) of
        {ok, Target} -> {link, bin(Target)};
        Error -> Error
    end;
read_ask({count, Path}, _) ->
    %% Since Linux 6.2 the size of /proc/PID/fd is the number of open files, and 0 before. Counting them would list them all.
    case prim_file:read_file_info(Path) of
        {ok, Info} when element(2, Info) > 0 -> {count, element(2, Info)};
        {ok, _} -> {error, enotsup};
        Error -> Error
    end;
read_ask({threads, Most, From}, Until) ->
    case prim_file:list_dir("/proc/self/task") of
        {ok, Names} when length(Names) > ?MAX_THREADS -> {error, e2big};
        {ok, Names} ->
            Tids = lists:sort([list_to_integer(Name) || Name <- Names]),
            {Later, Next} = lists:splitwith(fun(Tid) -> Tid < From end, Tids),
            {threads, Tids, read_threads(lists:sublist(Next ++ Later, Most), Until)};
        Error -> Error
    end.

%% As many as there is time for, but one at least. A kernel may have no schedstat.
read_threads([], _) -> [];
read_threads([Tid | Tids], Until) ->
    File = fun(File) -> prim_file:read_file(lists:concat(["/proc/self/task/", Tid, "/", File])) end,
    Read = case {File("stat"), File("schedstat"), File("status")} of
               {{ok, Stat}, Schedstat, {ok, Status}} ->
                   From = max(0, byte_size(Status) - ?STATUS_END_BYTES),
                   End = binary:part(Status, From, byte_size(Status) - From),
                   [{Tid, first_bytes(Stat), case Schedstat of {ok, Bytes} -> first_bytes(Bytes); _ -> <<>> end, End}];
               %% It has ended meanwhile.
               _ -> []
           end,
    Read ++ case now_ns() > Until of true -> []; false -> read_threads(Tids, Until) end.

first_bytes(Bytes) -> binary:part(Bytes, 0, min(byte_size(Bytes), ?THREAD_BYTES)).

%% The kernel's own files have no size. Anything else is not what was asked for.
read_group_file(Path) ->
    case prim_file:read_file_info(Path) of
        {ok, Info} when element(2, Info) =:= 0, element(3, Info) =:= regular -> prim_file:read_file(Path);
        {ok, _} -> {error, refused};
        Error -> Error
    end.

read_start(Path, Max) ->
    case prim_file:open(Path, [read, raw, binary]) of
        {ok, File} ->
            Read = prim_file:read(File, Max),
            prim_file:close(File),
            case Read of eof -> {ok, <<>>}; _ -> Read end;
        Error -> Error
    end.

%%% Facts: read once ----------------------------------------------------------------------------------------

%% Nothing here waits for another process or for a scheduler: on an overloaded node each such step takes a third of a second
%% and more, and without the facts little can be judged of the rest.
facts(#state{features = Features}) ->
    Info = fun(Key) -> try erlang:system_info(Key) catch error:_ -> absent end end,
    {fullsweep_after, Fullsweep} = Info(fullsweep_after),
    {min_heap_size, MinHeap} = Info(min_heap_size),
    {min_bin_vheap_size, MinVheap} = Info(min_bin_vheap_size),
    Clock = Info(os_monotonic_time_source),
    Allocators = Info(alloc_util_allocators),
    {_, _, _, Settings} = Info(allocator),
    IsDisabled = fun(A) -> proplists:get_value(e, proplists:get_value(A, Settings, [])) =:= false end,
    Arguments = Info(emu_args),
    Facts =
        #{otp_release => bin(Info(otp_release)), erts_version => bin(Info(version)),
          system_version => string:trim(bin(Info(system_version))),
          system_architecture => bin(Info(system_architecture)),
          emu_type => told(Info(emu_type)), emu_flavor => told(Info(emu_flavor)), build_type => bin(Info(build_type)),
          word_bytes => Info(wordsize), os_pid => list_to_integer(os:getpid()), os_type => os_type(),
          node => bin(node()), creation => Info(creation),
          start_ns => erlang:convert_time_unit(Info(start_time), native, nanosecond),
          now_ns => now_ns(), now_system_us => erlang:system_time(microsecond),
          time_offset_ns => erlang:time_offset(nanosecond),
          native_per_s => erlang:convert_time_unit(1, second, native),
          perf_counter_per_s => erlang:convert_time_unit(1, second, perf_counter),
          emu_args => [bin(A) || A <- lists:takewhile(fun(A) -> A =/= "--" end, Arguments)],
          init_args => init_args(lists:dropwhile(fun(A) -> A =/= "--" end, Arguments)), env => environment(Info(otp_release)),
          schedulers => Info(schedulers), schedulers_online => Info(schedulers_online),
          dirty_cpu_schedulers => Info(dirty_cpu_schedulers),
          dirty_cpu_schedulers_online => Info(dirty_cpu_schedulers_online),
          dirty_io_schedulers => Info(dirty_io_schedulers), async_threads => Info(thread_pool_size),
          scheduler_bind_type => bin(Info(scheduler_bind_type)),
          scheduler_bindings => tuple_to_list(Info(scheduler_bindings)),
          logical_processors => Info(logical_processors),
          logical_processors_online => Info(logical_processors_online),
          logical_processors_available => Info(logical_processors_available), cpu_quota => Info(cpu_quota),
          process_limit => Info(process_limit), port_limit => Info(port_limit), atom_limit => Info(atom_limit),
          ets_limit => Info(ets_limit),
          time_correction => Info(time_correction), time_warp_mode => bin(Info(time_warp_mode)),
          os_monotonic_time_source => bin(proplists:get_value(clock_id, Clock,
                                                              proplists:get_value(function, Clock, absent))),
          kernel_poll => lists:all(fun(Set) -> proplists:get_value(fallback, Set) =:= true
                                                   orelse proplists:get_value(kernel_poll, Set) =/= false
                                   end, Info(check_io)),
          message_queue_data => bin(Info(message_queue_data)), fullsweep_after => Fullsweep,
          min_heap_size_words => MinHeap, min_bin_vheap_size_words => MinVheap,
          max_heap_size_words => max_heap(Info(max_heap_size)),
          port_parallelism => Info(port_parallelism), dist_buf_busy_limit_bytes => Info(dist_buf_busy_limit),
          async_dist => Info(async_dist),
          alloc_util_allocators => [bin(A) || A <- Allocators],
          disabled_allocators => [bin(A) || A <- Allocators, IsDisabled(A)],
          applications => applications(),
          memory_watermark_set => watermark(rabbit(vm_memory_high_watermark)),
          memory_total_set => memory_size(rabbit(total_memory_available_override_value)),
          connected_nodes => length(nodes(connected)), hidden_nodes => length(nodes(hidden)),
          known_nodes => length(nodes(known)),
          multi_scheduling => bin(Info(multi_scheduling)),
          features => [bin(F) || F <- Features]
              ++ [<<"trace_sessions">> || list_to_integer(Info(otp_release)) >= 27]
              ++ [<<"processes_iterator">> || erlang:function_exported(erlang, processes_iterator, 0)]},
    maps:filter(fun(_, V) -> V =/= absent end, Facts).

told(absent) -> absent;
told(Atom) -> bin(Atom).

os_type() ->
    {Family, Name} = os:type(),
    <<(bin(Family))/binary, "/", (bin(Name))/binary>>.

max_heap({max_heap_size, Heap}) -> max_heap(Heap);
max_heap(#{size := Words}) -> Words;
max_heap(Words) when is_integer(Words) -> Words;
max_heap(_) -> absent.

%% From the application controller's own table: asking the controller itself would wait for it, and it may be
%% busy starting an application for ever. Only names and versions are copied out.
applications() ->
    Running = ets:select(ac_tab, [{{{application_master, '$1'}, '_'}, [], ['$1']}]),
    Loaded = ets:select(ac_tab, [{{{loaded, '$1'}, '$2'}, [], [{{'$1', {element, 6, '$2'}}}]}]),
    [{bin(App), bin(Version), lists:member(App, Running)} || {App, Version} <- lists:sort(lists:sublist(Loaded, 500))].

%% Of RabbitMQ the share of memory from which it blocks its publishers, or the size, and of how much memory, as it was set when it was
%% started. No other parameter of an application is read. What is neither a number nor a size stays here.
watermark({relative, Share}) -> share(Share);
watermark({absolute, Size}) -> memory_size(Size);
watermark(Share) -> share(Share).

rabbit(Parameter) ->
    case ets:lookup(ac_tab, {env, rabbit, Parameter}) of
        [{_, Value}] -> Value;
        [] -> absent
    end.

share(Share) when is_number(Share), abs(Share) < 1000 -> float_to_binary(float(Share), [{decimals, 6}]);
share(_) -> absent.

memory_size(Bytes) when is_integer(Bytes), abs(Bytes) < 1 bsl 62 -> integer_to_binary(Bytes);
memory_size(Text) when is_list(Text); is_binary(Text) ->
    case re:run(bin(Text), "^[0-9]{1,18}[A-Za-z]{0,3}$", [{capture, none}]) of
        match -> bin(Text);
        nomatch -> absent
    end;
memory_size(_) -> absent.

%% Those of init, as init:get_arguments/0 would tell them. What is not known to be harmless is left out: other arguments may
%% hold secrets (-setcookie, application parameters, -eval). Text stays a list here, because OTP 29 refuses some of what OTP
%% 25's compiler makes of binary patterns.
init_args(["-extra" | _]) -> [];
init_args([[$- | Flag] | Rest]) ->
    {Values, Next} = lists:splitwith(fun([$- | _]) -> false; (_) -> true end, Rest),
    [{bin(Flag), [bin(V) || V <- Kept]} || Kept <- harmless(Flag, Values)] ++ init_args(Next);
init_args([_ | Rest]) -> init_args(Rest);
init_args([]) -> [].

environment(Release) ->
    Flags = ["ERL_AFLAGS", "ERL_FLAGS", "ERL_ZFLAGS", "ERL_OTP" ++ Release ++ "_FLAGS"],
    Numbers = ["ERL_FULLSWEEP_AFTER", "ERL_MAX_PORTS", "ERL_MAX_ETS_TABLES", "ERL_THREAD_POOL_SIZE"],
    Set = fun(Names) -> [{Name, Value} || Name <- Names, Value <- [os:getenv(Name)], Value =/= false] end,
    [{bin(Name), [bin(Word) || Word <- flags(words(Value, [], []))]} || {Name, Value} <- Set(Flags)]
        ++ [{bin(Name), [bin(Value)]} || {Name, Value} <- Set(Numbers)].

%% Of a list of arguments, the emulator's flags with their values, and the harmless ones of the others. What follows `-extra' is the
%% program's own.
flags(["-extra" | _]) -> [];
flags([[Sign | Name] = Flag | Rest]) when Sign =:= $-; Sign =:= $+ ->
    {Values, Next} = lists:splitwith(fun([C | _]) -> C =/= $- andalso C =/= $+ end, Rest),
    Kept = case Sign of $+ -> [Values]; $- -> harmless(Name, Values) end,
    lists:append([[Flag | K] || K <- Kept]) ++ flags(Next);
flags([_ | Rest]) -> flags(Rest);
flags([]) -> [].

%% [Values] that may be told, or [].
harmless("kernel", Values) -> [kernel(Values)];
harmless(Flag, Values) ->
    [Values || lists:member(Flag, ["root", "bindir", "progname", "home", "boot", "config", "name", "sname", "noshell",
                                   "noinput", "detached", "hidden", "heart", "mode", "embedded", "start_epmd",
                                   "erl_epmd_port", "epmd_module", "proto_dist", "dist_listen", "connect_all",
                                   "emu_flavor", "emu_type", "smp", "args_file"])].

kernel([Key, Value | Rest]) ->
    Known = ["net_ticktime", "net_tickintensity", "net_setuptime", "dist_auto_connect", "connect_all",
             "inet_dist_listen_min", "inet_dist_listen_max", "inet_dist_use_interface", "inet_backend",
             "prevent_overlapping_partitions", "logger_level"],
    [Word || lists:member(Key, Known), Word <- [Key, Value]] ++ kernel(Rest);
kernel(_) -> [].

%% Splits as erlexec does: quotes hold a word together.
words([Quote | Text], Word, Words) when Quote =:= $"; Quote =:= $' ->
    {Quoted, Rest} = lists:splitwith(fun(C) -> C =/= Quote end, Text),
    words(lists:nthtail(min(1, length(Rest)), Rest), lists:reverse(Quoted, Word), Words);
words([$\\, C | Text], Word, Words) -> words(Text, [C | Word], Words);
words([C | Text], Word, Words) when C =:= $\s; C =:= $\t; C =:= $\n; C =:= $\r -> words(Text, [], [Word | Words]);
words([C | Text], Word, Words) -> words(Text, [C | Word], Words);
words([], Word, Words) -> [lists:reverse(W) || W <- lists:reverse([Word | Words]), W =/= []].

%%% Scans ---------------------------------------------------------------------------------------------------

further_part(#round{part = Part} = Round) -> Round#round{part = Part + 1, scanned = 0}.

next_round(All, Total, #round{number = Number} = Round) ->
    Rest = case All of {book, _, _} -> 1; _ -> All end,
    Round#round{number = Number + 1, part = 1, rest = Rest, list = All, total = Total, scanned = 0, dead = 0}.

%% After a part: how many of it did not answer.
end_part(Dead, #round{total = Total, dead = Before, rest = Rest} = Round) ->
    All = Before + Dead,
    case Rest of
        [] -> Round#round{dead = All, alive = Total - All};
        _ -> Round#round{dead = All}
    end.

%% How many of a kind may be read now: `Share' percent of the budget for the time since they were read last.
quota(#round{cost_ns = Cost}, Share, IntervalNs, #state{budget_ppm = Budget}) ->
    max(?MIN_PART, IntervalNs * Budget * Share div (100 * 1000000 * Cost)).

%% A part of a kind that has no more to it than reading each element and adding it up: {Round, Acc, State}.
scan_each(Part, Share, Read, Add, Acc, #state{interval_ns = Interval} = State) ->
    Now = now_ns(),
    Since = case Part#round.read_ns of none -> Interval; At -> Now - At end,
    Chunk = fun(Elements, A) -> add_all(Elements, read_all(Read, Elements), Add, A) end,
    scan(Part#round{read_ns = Now}, quota(Part, Share, Since, State), Chunk, Acc, State).

add_all([Element | Elements], [Result | Results], Add, Acc) -> add_all(Elements, Results, Add, Add(Element, Result, Acc));
add_all([], [], _, Acc) -> Acc.

%% What every answer to a scan begins with.
head(#round{total = Total, scanned = Scanned, number = Number, part = Part, rest = Rest}) ->
    #{total => Total, scanned => Scanned, round => Number, part => Part, last => Rest =:= []}.

%% The same where there is no list to read from yet: nothing that is not known is told as a number.
unread(#round{number = Number}, Count) -> #{total => Count, scanned => 0, round => Number, part => 0, last => false}.

%% Reads a part, in chunks of some milliseconds at most. The cost of one is smoothed, and a slow chunk (because the
%% collector had to wait) counts little, so that cost_ns comes near to CPU time. A part ends when its quota is done or its
%% time is over; what is left is the next part.
scan(Round, Quota, Chunk, Acc, State) ->
    scan(Round, Quota, Chunk, Acc, State, now_ns()).

scan(#round{rest = Rest, scanned = Scanned, size = Size, cost_ns = Cost} = Round, Left, Chunk, Acc, State, Begin) ->
    {Elements, Count, Rest1} = take(min(Left, Size), Rest, Round#round.list),
    Acc1 = Chunk(Elements, Acc),
    End = now_ns(),
    Each = min((End - Begin) div max(1, Count), 4 * Cost),
    Cost1 = max(20, (Cost * (4096 - Count) + Each * Count) div 4096),
    Size1 = if
                End - Begin > 5000000 -> max(8, Size div 2);
                End - Begin < 2000000 -> min(?CHUNK, Size * 2);
                true -> Size
            end,
    Round1 = Round#round{rest = Rest1, scanned = Scanned + Count, size = Size1, cost_ns = Cost1},
    State1 = State#state{scan_ns = State#state.scan_ns + Cost1 * Count},
    if
        Rest1 =:= []; Left =< Count; End > State#state.deadline_ns -> {Round1, Acc1, State1};
        true -> scan(Round1, Left - Count, Chunk, Acc1, rest(State1), now_ns())
    end.

%% The next part of the tables or ports, or `not_yet' while a list of very many is being made: {Part, State}.
next_part(Kind, #round{rest = [], list = Old, alive = Alive, total = Total} = Round, #state{listed = Listed} = State) ->
    {List, Count} = list_of(Kind),
    case maps:take(Kind, Listed) of
        {{Book, Found}, Others} ->
            close_book(Old),
            {next_round(Book, Found, Round), State#state{listed = Others}};
        error when Count > ?BOOK ->
            {not_yet, list_beside(Kind, State)};
        error when Count =:= Alive, is_list(Old) ->
            {next_round(Old, Total, Round), State};
        error ->
            close_book(Old),
            All = List(),
            {next_round(All, length(All), Round), State}
    end;
next_part(_, Round, State) -> {further_part(Round), State}.

%% At the end of a round of very many, has the list for the next one made, so that it is there when that is asked for.
list_before_next(Kind, #round{rest = []}, State) ->
    case list_of(Kind) of
        {_, Count} when Count > ?BOOK -> list_beside(Kind, State);
        _ -> State
    end;
list_before_next(_, _, State) -> State.

%% How all of a kind are listed, and how many the VM says that there are.
list_of(procs) -> {fun erlang:processes/0, erlang:system_info(process_count)};
list_of(tables) -> {fun ets:all/0, erlang:system_info(ets_count)};
list_of(ports) -> {fun erlang:ports/0, erlang:system_info(port_count)}.

%% Has a list made that {listed, ...} will bring (see listed/4): not before the sample that is being read is over, since items
%% that all schedulers must answer would wait for it, and one at a time, since two would wait for each other.
list_beside(Kind, #state{to_list = Later} = State) ->
    case is_listing(Kind, State) of
        true -> State;
        false -> State#state{to_list = Later ++ [Kind]}
    end.

is_listing(Kind, #state{listing = {Kind, _}}) -> true;
is_listing(Kind, #state{to_list = Later}) -> lists:member(Kind, Later).

start_listing(#state{listing = none, to_list = [Kind | Later]} = State) ->
    {List, Count} = list_of(Kind),
    State#state{listing = {Kind, lister(List, Count)}, to_list = Later};
start_listing(State) -> State.

%% A list is there. That of processes is read at once, the others when they are asked for.
listed(Lister, Table, Total, #state{listing = {Kind, Lister}, listed = Listed} = State) ->
    Book = {book, Table, Lister},
    Next = start_listing(State#state{listing = none}),
    case Kind of
        procs -> begin_book(Book, Total, Next);
        _ -> Next#state{listed = Listed#{Kind => {Book, Total}}}
    end.

%% Has a list made in a book, and keeps that until it is closed. At priority normal: making the list goes without a pause, as
%% does freeing the book's memory, and others are to come in between.
lister(List, Count) ->
    Collector = self(),
    spawn_opt(fun() ->
                  Table = ets:new(?MODULE, [public]),
                  Lister = self(),
                  Write = fun() ->
                              All = List(),
                              %% The table is gone before this process hears that its owner has ended, and nothing may be printed.
                              catch write_book(All, 1, Table),
                              Lister ! {written, length(All)}
                          end,
                  %% With a heap that takes all of it, nothing is ever moved.
                  spawn_opt(Write, [link, {priority, normal}, {min_heap_size, 8 * Count}]),
                  receive {written, Total} -> Collector ! {listed, Lister, Table, Total} end,
                  receive close -> ok end
              end, [link, {priority, normal}]).

write_book(All, Row, Table) ->
    {Taken, _, Rest} = take(?CHUNK, All, All),
    Tail = case Rest of [] -> []; _ -> Row + 1 end,
    ets:insert(Table, {Row, Taken ++ Tail}),
    Rest =:= [] orelse write_book(Rest, Row + 1, Table).

close_book({book, _, Lister}) -> Lister ! close;
close_book(_) -> ok.

%% {the first N, how many they are, the rest}
take(N, Rest, List) -> take(N, Rest, List, [], 0).

take(N, [Element | Rest], List, Taken, Count) when Count < N -> take(N, Rest, List, [Element | Taken], Count + 1);
take(N, Row, List, Taken, Count) when is_integer(Row), Count < N -> take(N, turn(Row, List), List, Taken, Count);
take(_, Rest, _, Taken, Count) -> {lists:reverse(Taken), Count, Rest}.

%% A row of a book: a list with the number of the next row as its tail, or `[]' at the end. When the book is there no more,
%% because a newer one has taken its place, the list is at its end.
turn(Row, {book, Table, _}) ->
    case catch ets:lookup(Table, Row) of [{_, Pids}] -> Pids; _ -> [] end.

%% Details of the top ones, as long as there is time: [{Element, Map}] of those for which Fun, in the reader, gives a map.
details(Fun, List, #state{deadline_ns = Deadline}) -> details(Fun, List, Deadline + ?SCAN_NS, []).

details(_, [], _, Found) -> lists:append(lists:reverse(Found));
details(Fun, List, Until, Found) ->
    {Elements, _, Rest} = take(?DETAILS, List, List),
    Maps = [{E, Map} || {E, #{} = Map} <- lists:zip(Elements, read_all(fun(E, _) -> Fun(E) end, Elements))],
    details(Fun, case now_ns() < Until of true -> Rest; false -> [] end, Until, [Maps | Found]).

%% The highest N, lowest first: {how many more fit, the lowest key, [{Key, Value}]}.
top(N) -> {N, 0, []}.

top_add(Key, _, {0, Lowest, _} = Top) when Key =< Lowest -> Top;
top_add(Key, Value, {0, _, [_ | List]}) ->
    [{Lowest, _} | _] = New = insert({Key, Value}, List),
    {0, Lowest, New};
top_add(Key, Value, {Left, _, List}) ->
    [{Lowest, _} | _] = New = insert({Key, Value}, List),
    {Left - 1, Lowest, New}.

insert({Key, _} = New, [{Lower, _} = First | Rest]) when Key > Lower -> [First | insert(New, Rest)];
insert(New, List) -> [New | List].

top_list({_, _, List}) -> lists:reverse(List).

%%% Every process: reductions and queue ----------------------------------------------------------------------

%% hot: in the very first round, when nothing is known of before, those that have done the most ever.
-record(seen, {place, counters, old, old_list, old_place, old_counters, own,
               delta = 0, queue_sum = 0, queue_max = 0, queue_nonempty = 0, new = 0, gone = 0, dead = 0, fresh = [],
               %% Those that did something: how many, and which of them, by chance; the next one is taken after so many.
               active = 0, chosen = {0, []}, stride, skip,
               busy, queued, hot}).

%% A part that is small is read when it is asked for. A large one has been read since the last sample, in steps (see step/1).
procs(Top, #state{procs = Procs} = State) ->
    case part(State#state{procs = Procs#procs{top = Top}}) of
        #state{procs = #procs{seen = none}} = Listing -> {nothing_read(Listing), Listing};
        Read ->
            {Value, Told} = end_procs(Read),
            {Value, go_on_before_next(Told)}
    end.

part(#state{procs = #procs{seen = none}} = State) ->
    case is_listing(procs, State) of
        true -> State;
        false ->
            case begin_part(State) of
                #state{procs = #procs{seen = none}} = Listing -> Listing;
                Begun -> scan_some(min(due(Begun), ?AT_ONCE_NS div cost(Begun)), Begun)
            end
    end;
part(#state{procs = #procs{round = #round{scanned = 0}}} = State) ->
    %% No step had its turn yet.
    step(State);
part(State) ->
    State.

%% The list is still being made.
nothing_read(#state{procs = #procs{round = Round}}) ->
    Head = unread(Round, erlang:system_info(process_count)),
    Head#{queue_sum => 0, queue_max => 0, queue_nonempty => 0, new => 0, gone => 0, step_us => 0,
          top_reductions => [], top_queues => [], skipped => skipped(now_ns())}.

go_on_before_next(State) ->
    case min(due(State), (State#state.procs)#procs.round#round.total) * cost(State) > ?AT_ONCE_NS of
        true ->
            case begin_part(State) of
                #state{procs = #procs{seen = none}} = Listing -> Listing;
                Begun -> pace(Begun)
            end;
        false -> State
    end.

cost(#state{procs = #procs{round = #round{cost_ns = Cost}}}) -> Cost.

%% How many processes are to be read in one interval between samples.
due(#state{procs = #procs{round = #round{total = Total} = Round} = Procs, interval_ns = Interval} = State) ->
    Within = min(Interval, ?FIRST_INTERVAL_NS),
    {Whole, Ppm} =
        case is_first_round(Procs) of
            true -> {Total * Within div ?FIRST_INTERVAL_NS, ?FIRST_ROUND_PPM};
            false -> {Total * Within div (?ROUND_SAMPLES * ?FIRST_INTERVAL_NS) + 1, ?ROUND_PPM}
        end,
    Most = Interval * Ppm div (1000000 * cost(State)),
    max(quota(Round, 45, Interval, State), min(Whole, Most)).

is_first_round(#procs{old = Old, old_counters = OldCounters}) -> Old =/= same andalso OldCounters =:= none.

%% Spreads what is due over most of the time until the next sample; the very first round is done as fast as it may.
pace(#state{procs = Procs, interval_ns = Interval} = State) ->
    Due = due(State),
    Steps = max(1, Due * cost(State) div ?STEP_NS),
    Fastest = ?STEP_NS * (1000000 - ?FIRST_ROUND_PPM) div ?FIRST_ROUND_PPM,
    Pause = case is_first_round(Procs) of
                true -> Fastest;
                false -> max(Fastest, Interval * 85 div (100 * Steps) - ?STEP_NS)
            end,
    State#state{procs = Procs#procs{left = Due, pause_ms = max(?STEP_PAUSE_NS, Pause) div 1000000}}.

%% Between samples.
step(#state{procs = #procs{left = Left, round = #round{rest = Rest}} = Procs} = State) when Left =< 0; Rest =:= [] ->
    State#state{procs = Procs#procs{pause_ms = infinity}};
step(#state{procs = #procs{left = Left} = Procs} = State) ->
    Begin = now_ns(),
    Size = min(Left, max(64, ?STEP_NS div cost(State))),
    #state{procs = Stepped} = Scanned = scan_some(Size, State#state{deadline_ns = Begin + 2 * ?STEP_NS, rested_ns = Begin}),
    Read = Stepped#procs.round#round.scanned - Procs#procs.round#round.scanned,
    Scanned#state{procs = Stepped#procs{left = Left - Read, step_ns = Stepped#procs.step_ns + now_ns() - Begin}}.

scan_some(Count, #state{procs = #procs{round = Round, seen = Seen} = Procs} = State) ->
    {Round1, Seen1, State1} = scan(Round, Count, fun visit/2, Seen, State),
    State1#state{procs = Procs#procs{round = Round1, seen = Seen1}}.

%% Begins the next part, or has a list made first: then `seen' stays `none'.
begin_part(#state{procs = #procs{round = #round{rest = [], list = List, total = Total, alive = Alive}} = Procs} = State) ->
    case {erlang:system_info(process_count), List} of
        {Count, _} when Count > ?BOOK ->
            case is_fresh(Procs) of
                true -> begin_round(List, Total, State);
                false -> list_beside(procs, State#state{procs = Procs#procs{pause_ms = infinity}})
            end;
        {Alive, [_ | _]} -> begin_round(List, Total, State);
        _ ->
            Pids = erlang:processes(),
            begin_round(Pids, length(Pids), State)
    end;
begin_part(#state{procs = #procs{round = Round} = Procs} = State) ->
    begin_seen(State#state{procs = Procs#procs{round = further_part(Round)}}).

%% Whether the book is to be used a while longer.
is_fresh(#procs{listed_ns = At, round = #round{list = {book, _, _}, total = Total}}) ->
    now_ns() - At < Total * 1000000000 div ?LISTED_PER_S;
is_fresh(_) -> false.

%% The list is there: reading begins at once.
begin_book(Book, Total, #state{procs = Procs} = State) ->
    pace(begin_round(Book, Total, State#state{procs = Procs#procs{listed_ns = now_ns()}})).

begin_round(List, Total, #state{procs = #procs{round = Round, counters = Counters, marks = Marks} = Procs} = State) ->
    #round{list = Old} = Round,
    Next = next_round(List, Total, Round),
    OldMarks = lists:reverse(Marks),
    case Counters =/= none andalso List =:= Old of
        true ->
            begin_seen(State#state{procs = Procs#procs{round = Next, marks = [], old = same, old_marks = OldMarks}});
        false ->
            begin_seen(close_books(Old, State#state{
                procs = Procs#procs{round = Next, counters = atomics:new(max(1, Total), []), marks = [],
                                    old = case Old of {book, _, _} -> 1; _ -> Old end, old_list = Old, old_place = 1,
                                    old_counters = Counters, old_marks = OldMarks}}))
    end.

%% Closes all books that neither this round nor the one before uses. `processes' may have to begin anew with the new one.
close_books(Old, #state{procs = #procs{round = #round{list = List}, books = Books} = Procs, heaps = Heaps} = State) ->
    Kept = lists:usort([Book || {book, _, _} = Book <- [Old, List, Heaps#round.list]]),
    [close_book(Book) || Book <- Books -- Kept],
    State#state{procs = Procs#procs{books = Kept}}.

begin_seen(#state{procs = Procs, own = Own} = State) ->
    #procs{counters = Counters, marks = Marks, old = Old, old_list = OldList, old_place = OldPlace, old_counters = OldCounters,
           top = Top, active = {Active, _}} = Procs,
    Stride = 1 + Active div ?MOST_RECEIVERS,
    State#state{procs = Procs#procs{seen = #seen{place = next_place(Marks), counters = Counters, old = Old, old_list = OldList,
                                                 old_place = OldPlace, old_counters = OldCounters, own = Own,
                                                 stride = Stride, skip = chance(Stride),
                                                 busy = top(Top), queued = top(Top), hot = top(Top)},
                                    left = 0, pause_ms = infinity, step_ns = 0}}.

end_procs(#state{procs = #procs{round = Round, seen = Scanned} = Procs} = State) ->
    #procs{old = Old, old_place = OldPlace, old_counters = OldCounters, marks = Marks} = Procs,
    Place = next_place(Marks),
    Seen = case Round#round.rest of [] -> rest_gone(Scanned); _ -> Scanned end,
    Now = now_ns(),
    #seen{place = NextPlace, old_place = NextOldPlace} = Seen,
    {Busy, Queued, Watched, Dropped} = tops(Seen, Procs),
    Told = maps:fold(fun(P, R, M) -> merge(P, R, fun erlang:max/2, M) end, Procs#procs.told, Dropped),
    {ToldNow, ToldBefore} = case Round#round.rest of [] -> {#{}, Told}; _ -> {Told, Procs#procs.told_before} end,
    {_, Chosen} = Seen#seen.chosen,
    Next = Procs#procs{round = end_part(Seen#seen.dead, Round), marks = [{NextPlace - 1, Now} | Marks],
                       most = [P || {P, _, _, _} <- lists:sublist(Busy, ?RAN)],
                       active = {Seen#seen.active * Round#round.total div max(1, Round#round.scanned), Chosen},
                       old = Seen#seen.old, old_place = NextOldPlace, seen = none, pause_ms = infinity, watched = Watched,
                       told = ToldNow, told_before = ToldBefore},
    Head = head(Round),
    Value = Head#{queue_sum => Seen#seen.queue_sum, queue_max => Seen#seen.queue_max,
                  queue_nonempty => Seen#seen.queue_nonempty, new => Seen#seen.new, gone => Seen#seen.gone,
                  step_us => Procs#procs.step_ns div 1000,
                  top_reductions => [{id(P), D, Q, S} || {P, D, Q, S} <- Busy],
                  top_queues => [{id(P), Q, D, S} || {P, D, Q, S} <- Queued],
                  skipped => skipped(Now)},
    {case {Old, OldCounters} of
         {same, _} -> Value#{delta_reductions => Seen#seen.delta, since_first_ns => visited_at(Place, Procs),
                             since_last_ns => visited_at(NextPlace - 1, Procs)};
         {_, none} -> Value;
         {_, _} -> Value#{delta_reductions => Seen#seen.delta, since_first_ns => visited_at(OldPlace, Procs),
                          since_last_ns => visited_at(NextOldPlace - 1, Procs)}
     end, State#state{procs = note_origins(Seen, note_tops(Busy, Queued, Next), State)}}.

skipped(Now) -> [{id(P), (Now - Since) div 1000000} || {P, Since} <- left_out()].

%% The top ones of a part: {by reductions, by queue: [{Pid, Delta, Queue, Status}], whom to watch, who is watched no more}.
%%
%% Where a round takes several samples, a process that stands out would be seen in each third of them only. So those that did
%% are asked again in each sample, until others are above them; in the very first round, when nothing is known of before,
%% those that have done the most ever. What they did until such a look is told once, and not again when the round comes by.
tops(#seen{busy = Busy, queued = Queued, hot = Hot, own = Own}, #procs{round = Round, top = Top} = Procs) ->
    %% So many that there is a book of them are read in one part in the very first round only.
    Whole = Round#round.part =:= 1 andalso Round#round.rest =:= [] andalso is_list(Round#round.list),
    Watched = case Whole of true -> #{}; false -> Procs#procs.watched end,
    Stands = [{P, Base, D, Q} || {D, {P, Q, Base}} <- top_list(Busy)] ++ [{P, Base, D, Q} || {Q, {P, D, Base}} <- top_list(Queued)],
    Told = maps:merge(Procs#procs.told_before, Procs#procs.told),
    New = [{P, Base, untold(P, Base, D, Told), Q} || {P, Base, D, Q} <- Stands, not is_map_key(P, Watched)],
    Met = [{P, Base, 0, 0} || {Base, P} <- top_list(Hot), not Whole, not lists:member(P, Own)],
    Known = [{P, Base, 0, 0} || {P, Base} <- maps:to_list(Watched)],
    Asked = asked(lists:ukeysort(1, New ++ Known ++ Met), Whole),
    ByDelta = lists:sublist(lists:reverse(lists:keysort(2, [Row || {_, D, _, _, _} = Row <- Asked, D > 0])), Top),
    ByQueue = lists:sublist(lists:reverse(lists:keysort(3, [Row || {_, _, Q, _, _} = Row <- Asked, Q > 0])), Top),
    %% Those of the first round have only just been met: they have another chance.
    Again = [Row || Row <- Asked, lists:keymember(element(1, Row), 1, Met)],
    Rows = fun(List) -> [{P, D, Q, S} || {P, D, Q, S, _} <- List] end,
    Reductions = fun(List) -> maps:from_list([{P, R} || {P, _, _, _, R} <- List, not Whole]) end,
    Stay = Reductions(ByDelta ++ ByQueue ++ Again),
    {Rows(ByDelta), Rows(ByQueue), Stay, maps:without(maps:keys(Stay), Reductions([R || R <- Asked, is_map_key(element(1, R), Watched)]))}.

%% What a process did since the round came by, without what was told of it while it was watched.
untold(Pid, Now, Delta, Told) ->
    case Told of
        #{Pid := Then} when Now - Then < Delta -> Now - Then;
        _ -> Delta
    end.

%% [{Pid, Delta, Queue, Status, Reductions}]; where the round is whole, only their status is new.
asked(List, Whole) ->
    Ask = fun(Pid, _) -> process_info(Pid, [status, reductions, message_queue_len]) end,
    [case Reading of
         [{_, S}, _, _] when Whole -> {P, D, Q, S, Base};
         [{_, S}, {_, R}, {_, Queue}] -> {P, D + R - Base, Queue, S, R};
         hung -> {P, D, Q, running, Base};
         undefined -> {P, D, Q, exiting, Base}
     end || {{P, Base, D, Q}, Reading} <- lists:zip(List, read_all(Ask, [P || {P, _, _, _} <- List]))].

%% Where the next part begins.
next_place([{Visited, _} | _]) -> Visited + 1;
next_place([]) -> 1.

%% When the round before visited a place.
visited_at(Place, #procs{old_marks = Marks}) ->
    case [At || {Visited, At} <- Marks, Visited >= Place] of
        [At | _] -> At;
        [] -> element(2, lists:last(Marks))
    end.

%% Visits some processes of the list. Neither item makes a process run: both are read from outside, unless it runs just now.
%% With the list of the round before, those that did nothing since and have no message are told as `same'; in the very first
%% round, those that have done no more than the top ones and have no message.
visit(Pids, #seen{old = same, counters = Counters, place = Place} = Seen) ->
    Readings = read_all(fun(Pid, Index) ->
                            case process_info(Pid, [reductions, message_queue_len]) of
                                [{_, Reductions}, {_, Queue}] ->
                                    case atomics:get(Counters, Place + Index - 1) of
                                        Reductions when Queue =:= 0 -> same;
                                        _ -> [Reductions | Queue]
                                    end;
                                undefined -> undefined
                            end
                        end, Pids),
    revisit(Pids, Readings, Place, Seen);
visit(Pids, #seen{old = Old, place = Place, old_place = OldPlace, counters = Counters} = Seen) ->
    Least = case Seen of #seen{old_counters = none, hot = {0, Lowest, _}} -> Lowest; _ -> -1 end,
    Readings = read_all(fun(Pid, Index) ->
                            case process_info(Pid, [reductions, message_queue_len]) of
                                [{_, Reductions}, {_, 0}] when Reductions =< Least ->
                                    atomics:put(Counters, Place + Index - 1, Reductions),
                                    same;
                                [{_, Reductions}, {_, Queue}] -> [Reductions | Queue];
                                undefined -> undefined
                            end
                        end, Pids),
    compare(Pids, Readings, Place, Old, OldPlace, Seen).

revisit([_ | Pids], [same | Readings], Place, Seen) ->
    revisit(Pids, Readings, Place + 1, Seen);
revisit([Pid | Pids], [Reading | Readings], Place, #seen{counters = Counters} = Seen) ->
    revisit(Pids, Readings, Place + 1, meet(Pid, Reading, Place, atomics:get(Counters, Place), Seen));
revisit([], [], Place, Seen) ->
    Seen#seen{place = Place}.

%% A new list. Processes keep their slot in the VM's table while they live, and erlang:processes/0 lists by slot
%% (erl_ptab.c), so the survivors stand in the same order in the old list: one walk along both finds each one's counter.
compare([Pid | Pids], [Reading | Readings], Place, [Pid | Old], OldPlace, Seen) ->
    Before = atomics:get(Seen#seen.old_counters, OldPlace),
    compare(Pids, Readings, Place + 1, Old, OldPlace + 1, meet(Pid, Reading, Place, Before, Seen));
compare([Pid | Pids] = All, [Reading | Rest] = Readings, Place, [Other | OldRest] = Old, OldPlace, Seen) ->
    %% Either Other has ended, or it comes later in the list, and then Pid is new.
    case has_ended(Other, OldRest, Pid, Pids) of
        false -> compare(Pids, Rest, Place + 1, Old, OldPlace, meet(Pid, Reading, Place, new, Seen));
        true -> compare(All, Readings, Place, OldRest, OldPlace + 1, gone(OldPlace, Seen))
    end;
compare([_ | _] = Pids, Readings, Place, Row, OldPlace, Seen) when is_integer(Row) ->
    compare(Pids, Readings, Place, turn(Row, Seen#seen.old_list), OldPlace, Seen);
compare([_ | Pids], [same | Readings], Place, [], OldPlace, Seen) ->
    compare(Pids, Readings, Place + 1, [], OldPlace, Seen);
compare([Pid | Pids], [Reading | Readings], Place, [], OldPlace, Seen) ->
    compare(Pids, Readings, Place + 1, [], OldPlace, meet(Pid, Reading, Place, new, Seen));
compare([], [], Place, Old, OldPlace, Seen) ->
    Seen#seen{place = Place, old = Old, old_place = OldPlace}.

%% At the end of a round: what is left of the old list is not in the new one.
rest_gone(#seen{old = [_ | Old], old_place = OldPlace} = Seen) ->
    rest_gone((gone(OldPlace, Seen))#seen{old = Old, old_place = OldPlace + 1});
rest_gone(#seen{old = Row, old_list = List} = Seen) when is_integer(Row) ->
    rest_gone(Seen#seen{old = turn(Row, List)});
rest_gone(Seen) -> Seen.

%% Has Other, that stands where Pid is now, ended? The next few of both lists mostly tell. Else it is asked: alive now means
%% alive when the list was made.
has_ended(Other, OldRest, Pid, Pids) ->
    case {is_near(Other, Pids, 16), is_near(Pid, OldRest, 16)} of
        {true, _} -> false;
        {false, true} -> true;
        {false, false} -> read_all(fun(P, _) -> is_process_alive(P) end, [Other]) =/= [true]
    end.

is_near(Pid, [Pid | _], _) -> true;
is_near(Pid, [_ | Rest], Left) when Left > 0 -> is_near(Pid, Rest, Left - 1);
is_near(_, _, _) -> false.

meet(Pid, [Now | Queue], Place, Before, #seen{counters = Counters} = Seen) ->
    atomics:put(Counters, Place, Now),
    case Before of
        Now when Queue =:= 0 -> Seen;
        new -> newcomer(Pid, Now, Queue, Seen);
        _ -> note(Pid, Now, Before, Queue, Seen)
    end;
meet(_, Nothing, Place, Before, #seen{counters = Counters} = Seen) ->
    atomics:put(Counters, Place, -1),
    ended(Nothing, Before, Seen).

newcomer(Pid, Now, Queue, #seen{old_counters = none, hot = Hot} = Seen) ->
    note(Pid, Now, -1, Queue, Seen#seen{hot = top_add(Now, Pid, Hot)});
newcomer(Pid, Now, Queue, #seen{new = New, fresh = Fresh} = Seen) when New < 20 ->
    note(Pid, Now, 0, Queue, Seen#seen{new = New + 1, fresh = [Pid | Fresh]});
newcomer(Pid, Now, Queue, #seen{new = New} = Seen) -> note(Pid, Now, 0, Queue, Seen#seen{new = New + 1}).

%% No answer. One without a counter never was counted as there, so it is not counted as gone.
ended(hung, _, Seen) -> Seen;
ended(undefined, Before, #seen{dead = Dead} = Seen) when Before =:= -1; Before =:= new -> Seen#seen{dead = Dead + 1};
ended(undefined, _, #seen{dead = Dead, gone = Gone} = Seen) -> Seen#seen{dead = Dead + 1, gone = Gone + 1}.

gone(OldPlace, #seen{old_counters = Counters, gone = Gone} = Seen) ->
    case Counters =/= none andalso atomics:get(Counters, OldPlace) of
        Known when is_integer(Known), Known >= 0 -> Seen#seen{gone = Gone + 1};
        _ -> Seen
    end.

note(Pid, Now, Before, Queue, #seen{own = Own} = Seen) ->
    Delta = case Before of -1 -> 0; _ -> Now - Before end,
    case lists:member(Pid, Own) of
        true -> Seen;
        false ->
            queue(Pid, Delta, Queue, Now, did(Pid, Delta, Queue, Now, Seen))
    end.

did(_, 0, _, _, Seen) -> Seen;
did(Pid, Delta, Queue, Now, #seen{active = Active, skip = Skip, chosen = {Count, Pids}} = Seen) ->
    Done = Seen#seen{delta = Seen#seen.delta + Delta, busy = top_add(Delta, {Pid, Queue, Now}, Seen#seen.busy), active = Active + 1},
    case Skip of
        1 when Count < ?MOST_RECEIVERS -> Done#seen{skip = chance(2 * Seen#seen.stride - 1), chosen = {Count + 1, [Pid | Pids]}};
        _ -> Done#seen{skip = max(1, Skip - 1)}
    end.

queue(_, _, 0, _, Seen) -> Seen;
queue(Pid, Delta, Queue, Now, Seen) ->
    Seen#seen{queue_sum = Seen#seen.queue_sum + Queue, queue_max = max(Queue, Seen#seen.queue_max),
              queue_nonempty = Seen#seen.queue_nonempty + 1,
              queued = top_add(Queue, {Pid, Delta, Now}, Seen#seen.queued)}.

%% Remembers the top ones for the next `processes'.
note_tops(Busy, Queued, #procs{busy = AllBusy, queued = AllQueued} = Procs) ->
    Procs#procs{busy = lists:foldl(fun({P, D, _, _}, M) -> merge(P, D, fun erlang:'+'/2, M) end, AllBusy, Busy),
                queued = lists:foldl(fun({P, _, Q, _}, M) -> merge(P, Q, fun erlang:max/2, M) end, AllQueued, Queued)}.

%% Into a map that never holds more than 500 keys.
merge(Key, Value, Join, Map) ->
    case Map of
        #{Key := Before} -> Map#{Key := Join(Before, Value)};
        _ when map_size(Map) < 500 -> Map#{Key => Value};
        _ -> Map
    end.

%%% Who creates processes ------------------------------------------------------------------------------------

%% Asks a few of the new processes, while they still live, what they run and who made them.
note_origins(#seen{new = New, fresh = Fresh}, #procs{origins = Origins} = Procs, #state{features = Features} = State) ->
    Found = details(fun(Pid) -> origin(Pid, Features) end, Fresh, State),
    Procs#procs{origins = lists:foldl(fun({_, O}, Map) -> merge(O, 1, fun erlang:'+'/2, Map) end, Origins, Found),
                new = Procs#procs.new + New, sampled = Procs#procs.sampled + length(Found)}.

%% What it runs, its parent's name, what its parent runs; `undefined' when it has ended meanwhile.
origin(Pid, Features) ->
    case identity(Pid, Features) of
        undefined -> undefined;
        #{call := Call, parent := Parent} when is_pid(Parent), node(Parent) =:= node() ->
            case identity(Parent, Features) of
                undefined -> #{call => Call, name => <<>>, parent_call => undefined};
                #{call := ParentCall} = Identity ->
                    #{call => Call, name => maps:get(name, Identity, <<>>), parent_call => ParentCall}
            end;
        #{call := Call, parent := Name} when is_atom(Name), Name =/= undefined ->
            #{call => Call, name => bin(Name), parent_call => undefined};
        #{call := Call} -> #{call => Call, name => <<>>, parent_call => undefined}
    end.

spawns(#state{procs = #procs{origins = Origins, sampled = Sampled, new = New} = Procs} = State) ->
    Calls = [{Call, Name, ParentCall, Count}
             || {#{call := Call, name := Name, parent_call := ParentCall}, Count} <- maps:to_list(Origins)],
    {#{new => New, sampled => Sampled, calls => lists:sublist(lists:reverse(lists:keysort(4, Calls)), 20)},
     State#state{procs = Procs#procs{origins = #{}, sampled = 0, new = 0}}}.

%%% Atoms -------------------------------------------------------------------------------------------------------

%% How the newest atoms since `atoms' was read before begin, which tells what they are made of. What is made from input is data: no
%% atom is told, but what several have in common.
%%
%% Atoms are never freed, so they stand in their table in the order in which they were made, and the VM's own terms may name one by
%% its place (ATOM_INTERNAL_REF3 in external.c, of 24 bits; badarg where there is none).
atoms(#state{atoms = Before} = State) ->
    Count = erlang:system_info(atom_count),
    Places = lists:seq(max(Before, Count - ?NEWEST_ATOMS), Count - 1),
    Newest = [starts(Text) || Place <- Places, Text <- atom_at(Place)],
    {#{new => Count - Before, sampled => length(Newest), beginnings => beginnings(Newest)}, State#state{atoms = Count}}.

atom_at(Place) when Place < 1 bsl 24 ->
    try [bin(binary_to_term(<<131, 75, Place:24>>))] catch error:badarg -> [] end;
atom_at(_) -> [].

%% From what each may share, [{Beginning, how many}]: the most frequent one first, of equally frequent ones the longest; then those of the
%% others.
beginnings(Each) ->
    Counts = lists:foldl(fun(Start, Map) -> merge(Start, 1, fun erlang:'+'/2, Map) end, #{}, lists:append(Each)),
    case lists:sort([{-N, -byte_size(Start), Start} || {Start, N} <- maps:to_list(Counts), N >= ?FEW_ALIKE]) of
        [{N, _, Start} | _] -> [{Start, -N} | beginnings([Starts || Starts <- Each, not lists:member(Start, Starts)])];
        [] -> []
    end.

%% What others may share: up to each separator, and the first letters.
starts(Text) ->
    Bytes = binary_to_list(Text),
    Letters = length(lists:takewhile(fun is_letter/1, Bytes)),
    Separated = [End || {End, Byte} <- lists:zip(lists:seq(1, length(Bytes)), Bytes), not is_of_word(Byte)],
    Ends = [End || End <- lists:usort([Letters | Separated]), End >= ?SHORT_BEGINNING, End < byte_size(Text)],
    [binary:part(Text, 0, End) || End <- lists:sublist(Ends, ?MOST_BEGINNINGS)].

is_of_word(Byte) -> is_letter(Byte) orelse Byte >= $0 andalso Byte =< $9 orelse Byte > 127.

is_letter(Byte) -> Byte >= $a andalso Byte =< $z orelse Byte >= $A andalso Byte =< $Z.

%%% Where processes stand ------------------------------------------------------------------------------------

%% Of some processes, chosen by chance, that wait: where, and for whom if they do so in the midst of something.
stands(Most, #state{budget_ppm = Budget, own = Own} = State) ->
    case known_processes(State) of
        not_yet ->
            {#{total => erlang:system_info(process_count), sampled => 0, waiting => 0, rows => [], waited_for => []}, State};
        {List, Total} ->
            Count = max(?LEAST_STANDS, min(Most, 10 * Budget * ?STANDS_SHARE div (100 * ?STAND_US))),
            Chosen = some(Count, List, Total) -- Own,
            Stood = details(fun stand/1, Chosen, State),
            Waiting = [Stand || {_, #{status := waiting} = Stand} <- Stood],
            Places = lists:foldl(fun add_stand/2, #{}, Waiting),
            Wanted = most_wanted(Waiting),
            MayWalk = Wanted =/= [] andalso may_walk(),
            Ask = fun(Pid) -> wanted(Pid, MayWalk) end,
            %% Those that are waited for may wait for others themselves.
            First = details(Ask, Wanted, State),
            Next = details(Ask, most_wanted([Stand || {_, Stand} <- First]) -- Wanted, State),
            Rows = lists:reverse(lists:keysort(2, [{Stack, N, Queued, best_on(On)}
                                                   || {Stack, {N, Queued, On}} <- maps:to_list(Places)])),
            {#{total => Total, sampled => length(Stood), waiting => length(Waiting),
               rows => lists:sublist(Rows, ?STAND_ROWS),
               waited_for => [{id(Pid), Status, Queue, Stack, [on(P) || P <- On]}
                              || {Pid, #{status := Status, queue := Queue, stack := Stack, on := On}} <- First ++ Next]},
             State#state{waited_for = [Pid || {Pid, _} <- First ++ Next]}}
    end.

%% Status and queue first: they are read from outside, and only who waits is asked for more. Whom a process monitors tells whom it
%% waits for: a call monitors who is called. Not where it waits in the loop of a behaviour, as one does that very many monitor.
stand(Pid) -> stand(Pid, fun erlang:'not'/1).

%% MayAsk: of whether it stands in a loop, whether it may be asked for what walks its links and monitors.
stand(Pid, MayAsk) ->
    case process_info(Pid, [status, message_queue_len]) of
        [{_, waiting}, {_, Queue}] ->
            case process_info(Pid, current_stacktrace) of
                {_, Stack} ->
                    IsLoop = is_loop(Stack),
                    HasFew = Queue =< ?WALKED_MESSAGES andalso MayAsk(IsLoop) andalso has_few_monitors(Pid),
                    #{status => waiting, queue => Queue, stack => functions(Stack),
                      has_few => HasFew,
                      on => case HasFew andalso not IsLoop of
                                true -> monitored(Pid);
                                false -> []
                            end};
                undefined -> undefined
            end;
        [{_, Status}, {_, Queue}] -> #{status => Status, queue => Queue, stack => [], on => []};
        undefined -> undefined
    end.

%% Whether there are so few that they may be listed.
has_few_monitors(Pid) ->
    case process_info(Pid, [garbage_collection_info, memory, message_queue_len]) of
        [{_, Heaps}, {_, Memory}, {_, Queue}] ->
            Memory - heap_words(Heaps) * erlang:system_info(wordsize) - Queue * ?MESSAGE_HEAD_BYTES < ?FEW_MONITORS_BYTES;
        undefined -> false
    end.

%% One that others wait for, also with the other ends of its connections: what it waits for may be there. It is one that very many
%% may monitor, so it is not asked for them where there are very many at all.
wanted(Pid, MayWalk) ->
    case stand(Pid, fun(_) -> MayWalk end) of
        #{has_few := true, on := On} = Stand -> Stand#{on := On ++ peers(Pid)};
        Stand -> Stand
    end.

is_loop([{gen_server, loop, _, _} | _]) -> true;
is_loop([{gen_event, fetch_msg, _, _} | _]) -> true;
is_loop([{gen_statem, Loop, _, _} | _]) -> lists:member(Loop, [loop, loop_receive, loop_hibernate]);
is_loop([]) -> true;
is_loop(_) -> false.

%% Local processes as pids, of others the name of their node.
monitored(Pid) ->
    case process_info(Pid, monitors) of
        {_, Monitors} ->
            case lists:usort([M || Monitor <- Monitors, M <- of_monitor(Monitor)]) of
                On when length(On) =< ?MOST_ON -> On;
                %% It calls one of them, who has not come to it: the only one with messages.
                On ->
                    case [P || P <- On, is_pid(P), has_messages(P)] of
                        [_] = Behind -> Behind;
                        _ -> []
                    end
            end;
        undefined -> []
    end.

has_messages(Pid) ->
    case process_info(Pid, message_queue_len) of
        {_, Length} -> Length > 0;
        undefined -> false
    end.

of_monitor({process, Pid}) when is_pid(Pid), node(Pid) =:= node() -> [Pid];
of_monitor({process, Pid}) when is_pid(Pid) -> [node(Pid)];
of_monitor({process, {Name, Node}}) when Node =:= node() -> [Pid || Pid <- [whereis(Name)], is_pid(Pid)];
of_monitor({process, {_, Node}}) -> [Node];
of_monitor(_) -> [].

%% Of a process that has few of them.
peers(Pid) ->
    case process_info(Pid, links) of
        {_, Links} ->
            case [Port || Port <- Links, is_port(Port)] of
                Ports when length(Ports) =< ?MOST_PEERS -> lists:usort([Peer || Port <- Ports, Peer <- peer(Port)]);
                _ -> []
            end;
        undefined -> []
    end.

%% The driver answers, and no process.
peer(Port) ->
    case erlang:port_info(Port, name) of
        {_, "tcp_inet"} ->
            case prim_inet:peername(Port) of
                {ok, {Address, Number}} when is_tuple(Address) -> [{tcp, address(Address, Number)}];
                _ -> []
            end;
        _ -> []
    end.

%% As a URL has it, but for zeros of IPv6: inet_parse may not be loaded.
address({_, _, _, _} = Address, Number) ->
    iolist_to_binary([lists:join($., [integer_to_list(N) || N <- tuple_to_list(Address)]), $:, integer_to_list(Number)]);
address(Address, Number) ->
    iolist_to_binary([$[, lists:join($:, [integer_to_list(N, 16) || N <- tuple_to_list(Address)]), "]:", integer_to_list(Number)]).

on({tcp, Address}) -> Address;
on(Node) when is_atom(Node) -> bin(Node);
on(Pid) -> id(Pid).

add_stand(#{stack := Stack, queue := Queue, on := On}, Places) ->
    {N, Queued, Before} = maps:get(Stack, Places, {0, 0, #{}}),
    Places#{Stack => {N + 1, Queued + min(Queue, 1), lists:foldl(fun(Target, Map) -> merge(Target, 1, fun erlang:'+'/2, Map) end, Before, On)}}.

best_on(On) -> [{on(Target), maps:get(Target, On)} || Target <- best(On, ?MOST_ON)].

%% The local processes that most wait for.
most_wanted(Stands) ->
    Votes = lists:foldl(fun(Pid, Map) -> merge(Pid, 1, fun erlang:'+'/2, Map) end, #{},
                        [Pid || #{on := On} <- Stands, Pid <- On, is_pid(Pid)]),
    best(Votes, ?MOST_WANTED).

%% So many of a list or a book, by chance; all where there are no more. Of a book, from some of its rows.
some(Count, List, Total) when Total =< Count -> element(1, take(Count, List, List));
some(Count, {book, Table, _} = Book, _) ->
    case ets:info(Table, size) of
        Rows when is_integer(Rows), Rows > 0 ->
            Chunks = [proper(turn(Row, Book)) || Row <- lists:usort([chance(Rows) || _ <- lists:seq(1, ?STAND_CHUNKS)])],
            lists:append([some(Count div ?STAND_CHUNKS, Pids, length(Pids)) || Pids <- Chunks]);
        _ -> []
    end;
some(Count, List, Total) ->
    pick(lists:usort([chance(Total) || _ <- lists:seq(1, Count)]), 1, List).

pick([Place | Places], Place, [Pid | Rest]) -> [Pid | pick(Places, Place + 1, Rest)];
pick([_ | _] = Places, At, [_ | Rest]) -> pick(Places, At + 1, Rest);
pick(_, _, _) -> [].

%% A row of a book without the number of the next one, which is its tail.
proper([Pid | Rest]) -> [Pid | proper(Rest)];
proper(_) -> [].

%% 1 .. Of, by chance; the module rand may have to be loaded first.
chance(Of) -> 1 + erlang:phash2(erlang:unique_integer(), Of).

%%% Where processes run --------------------------------------------------------------------------------------

%% Of those that did the most, where each stands that runs or wants to, or that waits in the midst of something: told with `processes'.
ran(#state{procs = #procs{most = Most}, ran = Ran} = State) ->
    Seen = details(fun at_work/1, Most, State),
    {#{sampled => length([P || {P, #{how := ran}} <- Seen])}, State#state{ran = lists:foldl(fun add_ran/2, Ran, Seen)}}.

add_ran({Pid, #{how := How, stack := Stack}}, Ran) ->
    Place = {How, Stack},
    case Ran of
        #{Pid := #{Place := Count} = Places} -> Ran#{Pid := Places#{Place := Count + 1}};
        #{Pid := Places} when map_size(Places) < 8 * ?RAN_STACKS -> Ran#{Pid := Places#{Place => 1}};
        #{Pid := _} -> Ran;
        _ when map_size(Ran) < ?RAN_KNOWN -> Ran#{Pid => #{Place => 1}};
        _ -> Ran
    end.

%% The status is read from outside. A server that waits in its loop has nothing to do.
at_work(Pid) ->
    case process_info(Pid, status) of
        {_, Status} when Status =:= running; Status =:= runnable; Status =:= waiting ->
            case process_info(Pid, [current_function, current_stacktrace]) of
                [{_, _}, {_, Stack}] when Status =:= waiting ->
                    case is_loop(Stack) of
                        true -> undefined;
                        false -> #{how => stood, stack => functions(Stack)}
                    end;
                [{_, Function}, {_, Stack}] -> #{how => ran, stack => stack(Function, Stack)};
                undefined -> undefined
            end;
        _ -> undefined
    end.

%% Of the stack at most so many functions, the innermost first.
functions(Stack) -> [mfa({M, F, A}) || {M, F, A, _} <- lists:sublist(Stack, ?STAND_DEPTH)].

%% A function of the VM's own that was interrupted is not on it.
stack(Function, Stack) ->
    case functions(Stack) of
        [At | _] = Functions ->
            case mfa(Function) of At -> Functions; Interrupted -> [Interrupted | Functions] end;
        [] -> [mfa(Function)]
    end.

%%% What messages weigh --------------------------------------------------------------------------------------

%% Who has done nothing between two looks has taken no message, and what its heap has more than before is what came: the VM puts a
%% message on the heap of its receiver, or into a fragment of it, when it is sent. Looked at are processes that `procs' has seen at work.
weigh(#state{budget_ppm = Budget, interval_ns = Interval, procs = #procs{active = {Active, Pids}}, weighed = Before, came = Came} = State) ->
    Most = min(?MOST_RECEIVERS, Interval * Budget * ?RECEIVERS_SHARE div (100 * 1000000 * 1000 * ?RECEIVER_US)),
    case lists:sublist(Pids, max(?LEAST_RECEIVERS, Most)) of
        [] -> {#{sampled => 0}, State};
        Receivers ->
            Begin = now_ns(),
            {_, Now} = lists:foldl(fun(Pause, {Old, Sums}) ->
                                       receive after Pause -> ok end,
                                       New = receivers(Receivers),
                                       {New, lists:foldl(fun came/2, Sums, lists:zip3(Receivers, Old, New))}
                                   end, {receivers(Receivers), Came}, ?RECEIVER_PAUSES_MS),
            {AllActive, AllSampled, Us} = Before,
            Sampled = length(Receivers),
            {#{sampled => Sampled},
             State#state{weighed = {AllActive + Active, AllSampled + Sampled, Us + (now_ns() - Begin) div 1000}, came = Now}}
    end.

messages(#state{weighed = {Active, Sampled, Us}, came = Came} = State) ->
    Weighed = [{Words, Pid, Class, Count} || {{Pid, Class}, {Count, Words}} <- maps:to_list(Came), Class =/= off_heap],
    Sizes = lists:foldl(fun({Words, _, Class, Count}, Sums) -> add_came({others, Class}, Count, Words, Sums) end, #{}, Weighed),
    Heaviest = lists:sublist(lists:reverse(lists:sort([Row || {_, Pid, _, _} = Row <- Weighed, is_pid(Pid)])), ?RECEIVER_ROWS),
    Word = erlang:system_info(wordsize),
    {#{active => Active, sampled => Sampled, us => Us,
       off_heap => lists:sum([Count || {{_, off_heap}, {Count, _}} <- maps:to_list(Came)]),
       sizes => [{Count, Words * Word} || {_, {Count, Words}} <- lists:sort(maps:to_list(Sizes))],
       rows => [{id(Pid), Count, Words * Word} || {Words, Pid, _, Count} <- Heaviest]},
     State#state{weighed = {0, 0, 0}, came = #{},
                 received = lists:sublist(unique([Pid || {_, Pid, _, _} <- Heaviest]), ?MOST_WANTED)}}.

%% [{reductions, messages, where these are, words in use}]. Read from outside, but for those that run or have messages that they have
%% not looked at: these answer when they are scheduled next, before they take a message. So all is asked in one: after an answer they
%% go on, and take what has come.
receivers(Pids) ->
    read_all(fun(Pid, _) ->
                 case process_info(Pid, [reductions, message_queue_len, message_queue_data, garbage_collection_info]) of
                     [{_, Reductions}, {_, Queue}, {_, Data}, {_, Heaps}] ->
                         {Reductions, Queue, Data, used_words(Heaps)};
                     undefined -> undefined
                 end
             end, Pids).

%% Words in use, old ones too: a full collection moves these into the young heap, and none makes the sum larger.
used_words(Heaps) ->
    lists:sum([proplists:get_value(Key, Heaps) || Key <- [heap_size, old_heap_size, mbuf_size]]).

%% {Pid, binary digits of the words of one message} => {messages, words}; those off the heap are not weighed.
%% A message that comes for a suspended process costs it a reduction; to take one costs more.
came({Pid, {Done, Before, Data, WordsBefore}, {Reductions, Now, Data, Words}}, Sums)
  when Reductions - Done =< 1, Now > Before, Words >= WordsBefore ->
    Count = Now - Before,
    Class = case Data of
                on_heap -> length(integer_to_list((Words - WordsBefore) div Count, 2));
                off_heap -> off_heap
            end,
    add_came({Pid, Class}, Count, Words - WordsBefore, Sums);
came(_, Sums) -> Sums.

%% Of a size that nobody new is remembered for the pid is left out.
add_came(Key, Count, Words, Sums) ->
    case Sums of
        #{Key := {CountBefore, WordsBefore}} -> Sums#{Key => {CountBefore + Count, WordsBefore + Words}};
        _ when map_size(Sums) < ?RECEIVERS_KNOWN; element(1, Key) =:= others -> Sums#{Key => {Count, Words}};
        _ -> add_came({others, element(2, Key)}, Count, Words, Sums)
    end.

%%% What a process is ----------------------------------------------------------------------------------------

%% #{call, parent} and, where there are, name and label: what it runs as its users know it, and who made it.
%% `undefined' when it has ended. This and all that asks single processes runs in the reader.
identity(Pid, Features) ->
    case noted(Pid, Features) of
        #{call := {<<"proc_lib">>, _, _}, parent := Parent} = Identity ->
            case maker(Parent, Features) of
                <<>> -> Identity;
                Maker -> Identity#{call => {child_of, Maker}}
            end;
        Identity -> Identity
    end.

%% Who made a process, as its users know it; <<>> where no more is known of that one, either.
maker(Parent, Features) when is_pid(Parent), node(Parent) =:= node() ->
    case noted(Parent, Features) of
        #{call := {<<"proc_lib">>, _, _}} = Identity -> called(maps:remove(call, Identity));
        Identity -> called(Identity)
    end;
maker(Name, _) when is_atom(Name), Name =/= undefined -> bin(Name);
maker(_, _) -> <<>>.

%% The same as identity/2, of this process alone.
noted(Pid, Features) ->
    Parent = [parent || lists:member(parent, Features)],
    case process_info(Pid, [registered_name, initial_call, garbage_collection_info | Parent]) of
        [{_, Name}, {_, Call}, {_, Heaps} | Made] ->
            Notes = maps:merge(#{parent => undefined}, maps:merge(notes(Pid, Call, heap_words(Heaps), Features),
                                                                  maps:from_list(Made))),
            Called = Notes#{call => case Notes of #{call := {_, _, _} = Noted} -> Noted; _ -> mfa(Call) end},
            case Name of [] -> Called; _ -> Called#{name => bin(Name)} end;
        undefined -> undefined
    end.

%% What proc_lib noted in the process dictionary; for a process that began with a bare fun, the fun. Where a single
%% key cannot be read, the dictionary is read of small processes only, because all of it is copied.
notes(Pid, {erlang, apply, 2}, _, Features) ->
    Label = [label || lists:member(label, Features)],
    case process_info(Pid, [current_stacktrace | Label]) of
        [{_, Stack} | Rest] ->
            case [mfa({M, F, A}) || {M, F, A, _} <- lists:reverse(Stack), M =/= erlang] of
                [Fun | _] -> maps:merge(#{call => Fun}, label(Rest));
                [] -> label(Rest)
            end;
        undefined -> #{}
    end;
notes(Pid, Call, HeapWords, Features) ->
    case {lists:member(dictionary_item, Features), Call} of
        {true, _} ->
            Label = [label || lists:member(label, Features)],
            case process_info(Pid, [{dictionary, '$initial_call'} | Label]) of
                [{_, Initial} | Rest] -> maps:merge(#{call => mfa(Initial)}, label(Rest));
                undefined -> #{}
            end;
        {false, {proc_lib, _, _}} when HeapWords =< ?DICTIONARY_HEAP_WORDS ->
            case process_info(Pid, dictionary) of
                {dictionary, Dictionary} ->
                    Parent = case lists:keyfind('$ancestors', 1, Dictionary) of
                                 {_, [P | _]} when is_pid(P); is_atom(P) -> P;
                                 _ -> undefined
                             end,
                    #{call => mfa(proplists:get_value('$initial_call', Dictionary)), parent => Parent};
                undefined -> #{}
            end;
        _ -> #{}
    end.

label([{label, undefined}]) -> #{};
label([{label, Label}]) -> #{label => text(Label)};
label([]) -> #{}.

%% Young and old heap and fragments, as allocated.
heap_words([{old_heap_block_size, Old}, {heap_block_size, Young}, {mbuf_size, Fragments} | _]) ->
    Old + Young + Fragments.

%% Off-heap binaries that it refers to, as the garbage collector counts them.
vheap_words([_, _, _, _, _, _, _, {bin_vheap_size, Young}, _, {bin_old_vheap_size, Old} | _]) ->
    Young + Old.

%% name and what it runs, for owners of tables and ports.
owner(Pid, Features) ->
    case identity(Pid, Features) of
        undefined -> #{owner => id(Pid)};
        #{call := Call} = Identity ->
            #{owner => id(Pid), owner_name => maps:get(name, Identity, <<>>), owner_call => Call}
    end.

%%% Top processes --------------------------------------------------------------------------------------------

-record(heaps, {largest, binaries, vheap = 0}).

%% process_info(P, memory) makes each process run to answer, so a scan would wake them all; heap_size (the young heap) and
%% garbage_collection_info are read from outside, but the latter takes 1 us. So it is read of those with a large young
%% heap, of a quarter of the others (another one each round), and of the largest ones of earlier parts; of all, where there are few.
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
            _ -> scan_each(Part, 12, Read, Rank, Carried, State)
        end,
    Foreign = fun(List) -> lists:sublist([Pid || {_, Pid} <- top_list(List), not lists:member(Pid, Own)], Top) end,
    Largest = Foreign(Heaps#heaps.largest),
    Referring = Foreign(Heaps#heaps.binaries),
    Why = [{P, reductions} || P <- best(Busy, Top)] ++ [{P, memory} || P <- Largest]
        ++ [{P, queue} || P <- best(Queued, Top)] ++ [{P, binary} || P <- Referring]
        ++ [{P, waited_for} || P <- State#state.waited_for] ++ [{P, message} || P <- State#state.received],
    Masters = maps:from_list(ets:select(ac_tab, [{{{application_master, '$1'}, '$2'}, [], [{{'$2', '$1'}}]}])),
    IsWalked = may_walk(),
    Rows = details(fun(Pid) -> process_row(Pid, Masters, Features, IsWalked) end, unique([Pid || {Pid, _} <- Why]), State1),
    Head = case Part of not_yet -> unread(Round, erlang:system_info(process_count)); _ -> head(Round) end,
    %% What all of them refer to is known when a round ends; the largest ones of earlier parts are read in each part.
    OfParts = case Head of #{part := 1} -> 0; _ -> State#state.vheap end + Heaps#heaps.vheap - Carried#heaps.vheap,
    Binaries = case Head of
                   #{last := true} when AreFew -> (OfParts + Carried#heaps.vheap) * erlang:system_info(wordsize);
                   _ -> undefined
               end,
    {Head#{binary_vheap_bytes => Binaries,
           rows => [Row#{by => [B || {P, B} <- Why, P =:= Pid], delta_reductions => maps:get(Pid, Busy, 0),
                         ran => most_of(ran, Pid, State#state.ran), stood => most_of(stood, Pid, State#state.ran)}
                    || {Pid, Row} <- Rows]},
     State1#state{heaps = Round, vheap = OfParts, procs = Procs#procs{busy = #{}, queued = #{}}, waited_for = [], received = [], ran = #{},
                  large = maps:from_list([{Pid, true} || Pid <- Largest ++ Referring])}}.

most_of(How, Pid, Ran) ->
    Stacks = maps:from_list([{Stack, Count} || {{As, Stack}, Count} <- maps:to_list(maps:get(Pid, Ran, #{})), As =:= How]),
    [{Stack, maps:get(Stack, Stacks)} || Stack <- best(Stacks, ?RAN_STACKS)].

%% A round begins with the list that is known.
part_of_heaps(#state{heaps = #round{rest = []} = Round} = State) ->
    case known_processes(State) of
        {List, Total} -> next_round(List, Total, Round);
        not_yet -> not_yet
    end;
part_of_heaps(#state{heaps = Round}) -> further_part(Round).

%% {list or book, how many}: what `procs' has, where it is good, or would cost much to make; `not_yet' while that is being made.
known_processes(#state{procs = #procs{round = #round{alive = Alive, list = List, total = Total}}}) ->
    case {List, erlang:system_info(process_count)} of
        {{book, _, _}, _} -> {List, Total};
        {_, Alive} -> {List, Total};
        {_, Count} when Count > ?BOOK -> not_yet;
        _ ->
            All = processes(),
            {All, length(All)}
    end.

%% Whether links and monitors of all processes are so few that walking those of one holds it up for a moment only. How many they are
%% is not known where +MFe false has switched their allocator off.
may_walk() ->
    case fixed() of
        [] -> false;
        Fixed ->
            Count = fun(Kind, Each) -> proplists:get_value(Kind, Fixed, 0) div Each end,
            Count(<<"monitor">>, ?MONITOR_BYTES) + Count(<<"link">>, ?LINK_BYTES) =< ?WALKED_LINKS
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
    Walked = case Waiting of [{_, Messages} | _] when IsWalked, Messages =< ?WALKED_MESSAGES -> [memory]; _ -> [] end,
    Items = [priority, reductions, message_queue_len, message_queue_data, trap_exit, group_leader,
             garbage_collection, garbage_collection_info, current_function, current_stacktrace | Walked],
    %% The status alone, and first: that is read from outside. The other items make the process run to answer, and on some
    %% releases it then says of itself that it runs. It may take its messages then, so the queue is what it was before.
    case {process_info(Pid, status), identity(Pid, Features), process_info(Pid, Items)} of
        {{_, Status}, #{call := Call, parent := Parent} = Identity,
         [{_, Priority}, {_, Reductions}, {_, QueueNow}, {_, QueueData}, {_, TrapExit}, {_, Leader}, {_, Gc},
          {_, HeapsNow}, {_, Function}, {_, Stack} | Memory]} ->
            {Queue, Heaps} = case QueueData of
                                 on_heap -> {element(2, hd(Waiting)), element(2, lists:last(Waiting))};
                                 %% What is beside the heap is told with what waits now.
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

%%% ETS ------------------------------------------------------------------------------------------------------

-record(tables, {words = 0, top, owners = #{}, slow = []}).

%% A table may vanish between any two calls here: ets:info gives `undefined' then.
tables(Top, State) ->
    case next_part(tables, State#state.tables, State) of
        {not_yet, Listing} ->
            {(unread(State#state.tables, erlang:system_info(ets_count)))#{rows => [], owners => []}, Listing};
        {Part, Begun} -> tables(Top, Part, Begun)
    end.

tables(Top, Part, #state{large_tables = Large, features = Features} = State) ->
    Read = fun(Tab, _) ->
               case {ets:info(Tab, owner), ets:info(Tab, decentralized_counters)} of
                   {Owner, false} when is_pid(Owner) -> {Owner, ets:info(Tab, memory)};
                   {Owner, true} when is_pid(Owner) -> {Owner, slow};
                   _ -> undefined
               end
           end,
    Memory = fun(Tab, _) -> ets:info(Tab, memory) end,
    Old = maps:keys(Large),
    Carried = add_all(Old, read_all(Memory, Old), fun rank_table/3, #tables{top = top(Top)}),
    {Round, Found, State1} =
        scan_each(Part, 8, Read, fun(Tab, Reading, Acc) -> add_table(Tab, Reading, Large, Acc) end, Carried, State),
    %% The size and memory of a table with decentralized counters are added up by all schedulers (1 ms on a busy node):
    %% these come last and few at a time, others each time.
    Slow = lists:sublist(rotate(Round#round.number * 16, Found#tables.slow -- Old), 16),
    Tables = add_all(Slow, read_all(Memory, Slow), fun rank_table/3, Found),
    Word = erlang:system_info(wordsize),
    Ranked = top_list(Tables#tables.top),
    Owners = Tables#tables.owners,
    Rows = details(fun(Tab) -> table_row(Tab, Features) end, [Tab || {_, Tab} <- Ranked], State1),
    Counts = maps:map(fun(_, {Count, _}) -> Count end, Owners),
    OwnerRows = details(fun(Pid) -> owner(Pid, Features) end, best(Counts, Top), State1),
    Head = head(Round),
    {Head#{memory_bytes => Tables#tables.words * Word, unread => length(Found#tables.slow -- Old) - length(Slow),
           rows => [Row#{memory_bytes => Words * Word} || {Words, Tab} <- Ranked, {T, Row} <- Rows, T =:= Tab],
           owners => [Row#{tables => Count, memory_bytes => Words * Word}
                      || {Pid, Row} <- OwnerRows, {Count, Words} <- [maps:get(Pid, Owners)]]},
     (list_before_next(tables, Round, State1))#state{tables = Round, large_tables = maps:from_list([{Tab, true} || {_, Tab} <- Ranked])}}.

add_table(Tab, {Owner, Memory}, Large, #tables{owners = Owners} = Acc) ->
    {Count, Words} = maps:get(Owner, Owners, {0, 0}),
    Own = case is_integer(Memory) of true -> Words + Memory; false -> Words end,
    Next = Acc#tables{owners = Owners#{Owner => {Count + 1, Own}}},
    case Memory of
        slow -> Next#tables{slow = [Tab | Next#tables.slow]};
        undefined -> Next;
        _ when is_map_key(Tab, Large) -> Next#tables{words = Next#tables.words + Memory};
        _ -> rank_table(Tab, Memory, Next#tables{words = Next#tables.words + Memory})
    end;
add_table(_, _, _, Acc) -> Acc.

rank_table(Tab, Memory, #tables{top = Top} = Acc) when is_integer(Memory) -> Acc#tables{top = top_add(Memory, Tab, Top)};
rank_table(_, _, Acc) -> Acc.

rotate(_, []) -> [];
rotate(By, List) ->
    {First, Rest} = lists:split(By rem length(List), List),
    Rest ++ First.

table_row(Tab, Features) ->
    case [ets:info(Tab, I) || I <- [owner, name, size, type, protection, keypos, named_table, compressed, fixed]] of
        [Owner, Name, Size, Type, Protection, KeyPos, Named, Compressed, Fixed] when is_pid(Owner), is_integer(KeyPos) ->
            Row = #{id => case Named of true -> <<>>; _ -> bin(ref_to_list(Tab)) end,
                    name => bin(Name), named => Named, size => Size, type => Type,
                    protection => Protection, keypos => KeyPos, compressed => Compressed, fixed => Fixed,
                    read_concurrency => ets:info(Tab, read_concurrency),
                    write_concurrency => ets:info(Tab, write_concurrency),
                    decentralized_counters => ets:info(Tab, decentralized_counters)},
            maps:merge(Row, owner(Owner, Features));
        _ -> undefined
    end.

%%% Ports and distribution -----------------------------------------------------------------------------------

-record(ports, {dead = 0, in = 0, out = 0, queue = 0, kinds = #{}, owners = #{}, top, traffic}).

ports(Top, State) ->
    case next_part(ports, State#state.ports, State) of
        {not_yet, Listing} ->
            {(unread(State#state.ports, erlang:system_info(port_count)))#{kinds => [], owners => [], rows => [],
                                                                          sockets => sockets()}, Listing};
        {Part, Begun} -> ports(Top, Part, Begun)
    end.

ports(Top, #round{read_ns = Since} = Part, #state{traffic = Traffic, old_traffic = Old, features = Features} = State) ->
    Read = fun(Port, _) ->
               case [erlang:port_info(Port, I) || I <- [name, connected, input, output, queue_size]] of
                   [{_, Name}, {_, Owner}, {_, In}, {_, Out}, {_, Queue}] -> {{Owner, kind(Name)}, In, Out, Queue};
                   _ -> undefined
               end
           end,
    {Round, Ports, State1} =
        scan_each(Part, 8, Read, fun(Port, Reading, Acc) -> add_port(Port, Reading, Old, Acc) end,
                  #ports{top = top(Top), traffic = Traffic}, State),
    Rows = details(fun(Port) -> port_row(Port, Features) end, [Port || {_, Port} <- top_list(Ports#ports.top)], State1),
    Owners = Ports#ports.owners,
    OwnerRows = details(fun({Pid, _}) -> owner(Pid, Features) end, best(Owners, Top), State1),
    Head = head(Round),
    Value = Head#{in_bytes => Ports#ports.in, out_bytes => Ports#ports.out, queue_bytes => Ports#ports.queue,
                  kinds => [{Kind, maps:get(Kind, Ports#ports.kinds)} || Kind <- best(Ports#ports.kinds, 20)],
                  owners => [Row#{kind => Kind, ports => maps:get(Key, Owners)} || {{_, Kind} = Key, Row} <- OwnerRows],
                  sockets => sockets(),
                  rows => [with_deltas(Port, Row, Old) || {Port, Row} <- Rows]},
    Last = Round#round.rest =:= [],
    {case Old of none -> Value; _ -> Value#{since_ns => Since} end,
     (list_before_next(ports, Round, State1))#state{ports = end_part(Ports#ports.dead, Round),
                  traffic = case Last of true -> #{}; false -> Ports#ports.traffic end,
                  old_traffic = case Last of true -> Ports#ports.traffic; false -> Old end}}.

%% Ranked by traffic since the round before, and before that, by all.
add_port(Port, {{_, Kind} = Owner, In, Out, Queue}, Old, #ports{top = Top, traffic = Traffic, owners = Owners} = Acc) ->
    {OldIn, OldOut} = port_before(Port, Old),
    Acc#ports{in = Acc#ports.in + In, out = Acc#ports.out + Out, queue = Acc#ports.queue + Queue,
              kinds = merge(Kind, 1, fun erlang:'+'/2, Acc#ports.kinds),
              owners = Owners#{Owner => maps:get(Owner, Owners, 0) + 1},
              top = top_add(In - OldIn + Out - OldOut + Queue, Port, Top), traffic = Traffic#{Port => {In, Out}}};
add_port(_, hung, _, Acc) -> Acc;
add_port(_, undefined, _, #ports{dead = Dead} = Acc) -> Acc#ports{dead = Dead + 1}.

port_before(_, none) -> {0, 0};
port_before(Port, Old) -> maps:get(Port, Old, {0, 0}).

%% A spawned program's port is named by its command line, which may hold secrets: only the program is told. Ports of
%% file descriptors are named "0/1".
kind(Name) ->
    case Name -- "0123456789" of
        "/" -> <<"fd">>;
        _ -> cut(bin(lists:takewhile(fun(C) -> C =/= $\s end, Name)), 64)
    end.

port_row(Port, Features) ->
    case [erlang:port_info(Port, I) || I <- [name, input, output, queue_size, connected, os_pid]] of
        [{_, Name}, {_, In}, {_, Out}, {_, Queue}, {_, Owner}, {_, OsPid}] ->
            Row = #{id => id(Port), kind => kind(Name), in_bytes => In, out_bytes => Out, queue_bytes => Queue},
            maps:merge(case OsPid of undefined -> Row; _ -> Row#{os_pid => OsPid} end, owner(Owner, Features));
        _ -> undefined
    end.

with_deltas(_, Row, none) -> Row;
with_deltas(Port, #{in_bytes := In, out_bytes := Out} = Row, Old) ->
    {OldIn, OldOut} = port_before(Port, Old),
    Row#{delta_in_bytes => In - OldIn, delta_out_bytes => Out - OldOut}.

%% The counts that the socket NIF keeps; nothing is asked of any socket. Not where sockets were never used.
sockets() ->
    case erlang:module_loaded(socket) andalso catch socket:info() of
        #{counters := Counters} -> maps:filter(fun(_, V) -> is_integer(V) end, Counters);
        _ -> #{}
    end.

%% Through the connection's own port or process: net_kernel is not asked, it may be busy or stuck itself.
dist(State) ->
    Hidden = nodes(hidden),
    Nodes = lists:sublist(erlang:system_info(dist_ctrl), 200),
    Known = details(fun controller/1, [Controller || {_, Controller} <- Nodes], State),
    #{busy_limit_bytes => erlang:system_info(dist_buf_busy_limit), total => length(nodes(connected)),
      rows => [maps:merge(#{node => bin(Node), hidden => lists:member(Node, Hidden), controller => id(Controller)},
                          proplists:get_value(Controller, Known, #{})) || {Node, Controller} <- Nodes]}.

controller(Port) when is_port(Port) ->
    case [erlang:port_info(Port, I) || I <- [name, input, output, queue_size]] of
        [{_, Name}, {_, In}, {_, Out}, {_, Queue}] ->
            (traffic(Name, Port, In, Out))#{queue_bytes => Queue};
        _ -> #{}
    end;
controller(Pid) ->
    case process_info(Pid, [message_queue_len, reductions, status]) of
        [{_, Queue}, {_, Reductions}, {_, Status}] ->
            #{message_queue_len => Queue, reductions => Reductions, status => Status};
        undefined -> #{}
    end.

%% What the distribution sends goes past what the VM counts as a port's output (seen on 23 to 29: that stays at what the
%% nodes said when they met); the socket's driver counts it. Other drivers might take the question for something else.
traffic("tcp_inet", Port, In, Out) ->
    case catch inet:getstat(Port, [recv_oct, send_oct]) of
        {ok, [{recv_oct, Received}, {send_oct, Sent}]} -> #{in_bytes => Received, out_bytes => Sent};
        _ -> #{in_bytes => In, out_bytes => Out}
    end;
traffic(_, _, In, Out) -> #{in_bytes => In, out_bytes => Out}.

%%% Allocators -----------------------------------------------------------------------------------------------

%% A full dump is 1 MB of terms with 32 schedulers; folded it is a row of numbers per instance.
allocators() ->
    All = [{A, erlang:system_info({allocator, A})} || A <- erlang:system_info(alloc_util_allocators)],
    Enabled = [{A, Instances} || {A, [_ | _] = Instances} <- All],
    #{disabled => [bin(A) || {A, false} <- All],
      instances => [instance(A, Number, Data) || {A, Instances} <- Enabled, {instance, Number, Data} <- Instances],
      foreign => foreign(Enabled),
      fixed => fixed(),
      mseg => [mseg(Number, Data) || {instance, Number, Data} <- system_list({allocator, mseg_alloc})],
      mmap => [mmap(Kind, Data) || {Kind, Data} <- system_list({allocator, erts_mmap})]}.

system_list(Key) ->
    case catch erlang:system_info(Key) of List when is_list(List) -> List; _ -> [] end.

%% {Allocator, Instance, Mbcs, Pool, Sbcs, Calls}; blocks are all that lie in the carriers, foreign ones too.
instance(Allocator, Number, Data) ->
    {bin(Allocator), Number, carriers(mbcs, Data), carriers(mbcs_pool, Data), carriers(sbcs, Data),
     calls(proplists:get_value(calls, Data, []))}.

%% {BlockCount, BlockBytes, Carriers, CarrierBytes, BlockBytesMax, CarriersMax, CarrierBytesMax, MsegCarriers, MsegBytes};
%% maxima ever, 0 where none are kept (pool).
carriers(Kind, Data) ->
    Set = proplists:get_value(Kind, Data, []),
    Blocks = [Sizes || {_, Sizes} <- proplists:get_value(blocks, Set, [])],
    Sum = fun(Key, Position) ->
              lists:sum([element(Position, E)
                         || Sizes <- Blocks, E <- [lists:keyfind(Key, 1, Sizes)], tuple_size(E) >= Position])
          end,
    {Carriers, CarriersMax} = now_and_max(carriers, Set),
    {Bytes, BytesMax} = now_and_max(carriers_size, Set),
    {Sum(count, 2), Sum(size, 2), Carriers, Bytes, Sum(size, 4), CarriersMax, BytesMax,
     proplists:get_value(mseg_alloc_carriers, Set, 0), proplists:get_value(mseg_alloc_carriers_size, Set, 0)}.

now_and_max(Key, Set) ->
    case lists:keyfind(Key, 1, Set) of
        {_, Now, _, Max} -> {Now, Max};
        {_, Now} -> {signed(Now), 0};
        false -> {0, 0}
    end.

%% Of the pool's carriers, the VM counts one too few each time that somebody has them walked (before ERTS 15.1), and has no sign.
signed(N) when N >= 1 bsl 63 -> N - (1 bsl 64);
signed(N) -> N.

%% {Alloc, Free, Realloc, MsegAlloc, MsegDealloc, MsegRealloc, SysAlloc, SysFree, SysRealloc}; always in this order.
calls(Calls) ->
    list_to_tuple([Giga * 1000000000 + Rest || {_, Giga, Rest} <- Calls]).

%% Blocks of one allocator in carriers of another (22 and 23 share one pool; later only with +M<S>cp), summed.
foreign(Allocators) ->
    Blocks = [{{bin(Allocator), bin(Of)}, Size}
              || {Allocator, Instances} <- Allocators, {instance, _, Data} <- Instances,
                 Kind <- [mbcs, mbcs_pool, sbcs],
                 {Of, Sizes} <- proplists:get_value(blocks, proplists:get_value(Kind, Data, []), []), Of =/= Allocator,
                 Size <- [element(2, lists:keyfind(size, 1, Sizes))], Size > 0],
    [{In, Of, Bytes} || {{In, Of}, Bytes} <- maps:to_list(lists:foldl(fun({Key, Size}, Map) ->
                                                                          merge(Key, Size, fun erlang:'+'/2, Map)
                                                                      end, #{}, Blocks))].

%% {Kind, Bytes} of what fix_alloc holds: monitor, link, bif_timer, proc, msg_ref ... Each scheduler tells what it has given out and taken
%% back, which are sums of all only together, and wrap; erlang:memory/0 asks in the same way.
fixed() ->
    Ref = make_ref(),
    case catch erlang:system_info({memory_internal, Ref, [fix_alloc]}) of
        true -> [{bin(Kind), Bytes} || {Kind, Bytes} <- lists:sort(maps:to_list(fixed(erlang:system_info(schedulers), Ref, #{}, 0)))];
        _ -> []
    end.

fixed(0, _, Sums, 0) -> Sums;
fixed(0, _, Sums, Mask) -> maps:map(fun(_, Bytes) -> Bytes band Mask end, Sums);
fixed(Schedulers, Ref, Sums, Mask) ->
    receive
        {Ref, _, Told} ->
            Types = [Of || {fix_alloc, _, Data} <- Told, Of <- [lists:keyfind(fix_types, 1, Data)], Of =/= false],
            Add = fun({Kind, _, Used}, Map) -> merge(Kind, Used, fun erlang:'+'/2, Map) end,
            Masks = [M || {fix_types, M, _} <- Types],
            fixed(Schedulers - 1, Ref, lists:foldl(Add, Sums, lists:append([element(tuple_size(Of), Of) || Of <- Types])),
                  lists:max([Mask | Masks]))
    end.

%% {Instance, CachedSegments, CacheHits, Segments, SegmentsMax, SegmentBytes, SegmentBytesMax, Alloc, Dealloc, Realloc,
%% Create, Destroy}, summed over the kinds of memory.
mseg(Number, Data) ->
    Kinds = [{proplists:get_value(status, Kind, []), proplists:get_value(calls, Kind, [])} || {memkind, Kind} <- Data],
    Status = fun(Key, Position) ->
                 lists:sum([element(Position, E) || {S, _} <- Kinds, E <- [lists:keyfind(Key, 1, S)], E =/= false])
             end,
    Calls = fun(Key) ->
                lists:sum([Giga * 1000000000 + Rest || {_, C} <- Kinds, {K, Giga, Rest} <- C, K =:= Key])
            end,
    {Number, Status(cached_segments, 2), Status(cache_hits, 2), Status(segments, 2), Status(segments, 4),
     Status(segments_size, 2), Status(segments_size, 4), Calls(mseg_alloc), Calls(mseg_dealloc), Calls(mseg_realloc),
     Calls(mseg_create), Calls(mseg_destroy)}.

%% Default and literal memory: #{kind, os_bytes, and of a super carrier total, used (also of its two areas), free segments}.
mmap(Kind, Data) ->
    Part = fun(Key, Name) -> proplists:get_value(Name, proplists:get_value(Key, Data, []), []) end,
    Numbers = [{os_bytes, proplists:get_value(used, Part(os, sizes), absent)}]
        ++ [{K, proplists:get_value(From, Part(supercarrier, sizes), absent)}
            || {K, From} <- [{total_bytes, total}, {sa_bytes, total_sa}, {sua_bytes, total_sua}, {used_bytes, used},
                             {used_sa_bytes, used_sa}, {used_sua_bytes, used_sua}]]
        ++ [{K, proplists:get_value(From, Part(supercarrier, free_segs), absent)}
            || {K, From} <- [{free_segments, used}, {free_segments_max, max}, {free_segments_reserved, reserved}]],
    maps:from_list([{kind, bin(Kind)} | [{K, V} || {K, V} <- Numbers, V =/= absent]]).

%%% Items that are read only when somebody asks for them by name ------------------------------------------------

%% They may take long: each has a time limit of its own (milliseconds), which its parameters may set.
limit_ms({Name, Params}) when is_map(Params) ->
    case long_ms(Name) of
        none -> none;
        Default when Name =:= locks -> bounded(limit_ms, Params, 50, counted_ms(Params) + Default, ?MOST_LOCKS_MS);
        Default -> bounded(limit_ms, Params, 50, Default, 600000)
    end;
limit_ms(Name) -> limit_ms({Name, #{}}).

long_ms(carriers) -> 10000;
long_ms(allocations) -> 10000;
long_ms(code_memory) -> 5000;
long_ms(holders) -> 10000;
long_ms(collect) -> 30000;
%% Besides the time for which they are counted.
long_ms(locks) -> 30000;
long_ms(_) -> none.

%% When such an item has to be at its end.
until(Item, Params) -> now_ns() + limit_ms({Item, Params}) * 1000000.

%% Runs Fun in a process of its own, at priority normal, whose heap is bounded and gone afterwards: {ok, Result}, {failed, Why},
%% `late' or `large'. The one between never waits for anything, so it ends the other one in time, and when we are killed.
aside(Fun, Until) -> aside(Fun, Until, [{priority, normal}, max_words(?ASIDE_WORDS)]).

max_words(Words) -> {max_heap_size, #{size => Words, kill => true, error_logger => false}}.

aside(Fun, Until, Options) ->
    Collector = self(),
    Guard = spawn_opt(fun() -> guard(Collector, Fun, Options) end, [link, {priority, high}]),
    receive
        {Guard, Result} -> Result
    after max(0, (Until - now_ns()) div 1000000) ->
        unlink(Guard),
        exit(Guard, shutdown),
        receive {Guard, Result} -> Result after 0 -> late end
    end.

guard(Collector, Fun, Options) ->
    process_flag(trap_exit, true),
    Safe = fun() -> exit(try {done, Fun()} catch Class:Reason:Stack -> {failed, text({Class, Reason, Stack})} end) end,
    Worker = spawn_opt(Safe, [link | Options]),
    receive
        {'EXIT', Worker, {done, Result}} -> Collector ! {self(), {ok, Result}};
        {'EXIT', Worker, {failed, Why}} -> Collector ! {self(), {failed, Why}};
        {'EXIT', Worker, _} -> Collector ! {self(), large};
        {'EXIT', _, _} -> exit(Worker, kill)
    end.

%% What all processes give, in chunks: {how many there are, how many were looked at, Acc, State}.
each_process(Chunk, Acc, Until, State) ->
    {List, Total} = all_processes(Until),
    Rest = case List of {book, _, _} -> 1; _ -> List end,
    Round = #round{number = 1, part = 1, rest = Rest, list = List, total = Total, cost_ns = 1000},
    {#round{scanned = Scanned}, Found, Next} =
        scan(Round, max(1, Total), Chunk, Acc, State#state{deadline_ns = Until, rested_ns = now_ns()}),
    close_book(List),
    {Total, Scanned, Found, Next}.

all_processes(Until) ->
    case erlang:system_info(process_count) of
        Count when Count > ?BOOK ->
            Lister = lister(fun erlang:processes/0, Count),
            receive {listed, Lister, Table, Total} -> {{book, Table, Lister}, Total}
            after max(0, (Until - now_ns()) div 1000000) ->
                unlink(Lister),
                exit(Lister, kill),
                {[], Count}
            end;
        _ ->
            All = erlang:processes(),
            {All, length(All)}
    end.

%% Processes that the client has named, by pid or by registered name; what is none of this node's is left out.
local_pids(Names) ->
    [Pid || Name <- lists:sublist(Names, ?MAX_NAMED), is_binary(Name), Pid <- [local_pid(Name)], is_pid(Pid), node(Pid) =:= node()].

local_pid(Name) ->
    try list_to_pid(binary_to_list(Name))
    catch error:_ ->
        try whereis(binary_to_existing_atom(Name, utf8)) catch error:_ -> none end
    end.

%% name, label and what they run, of those that still live.
named_rows(Rows, #state{features = Features} = State) ->
    Known = details(fun(Pid) -> identity(Pid, Features) end, [Pid || {Pid, _} <- Rows], State#state{deadline_ns = now_ns()}),
    [case lists:keyfind(Pid, 1, Known) of
         {_, #{call := Call} = Identity} -> maps:merge(Row#{pid => id(Pid), initial_call => Call}, maps:with([name, label], Identity));
         false -> Row#{pid => id(Pid)}
     end || {Pid, Row} <- Rows].

%%% What is in the carriers -----------------------------------------------------------------------------------

%% The VM walks all carriers of one instance of an allocator, block by block, on the thread that the instance belongs to
%% (erl_alloc_util.c, blockscan). agent/README.md says how long that holds the thread, and what is wrong with it before ERTS 15.1.
%%
%% blocks: what is to be looked at, used ones and free ones, which never stand next to each other; pool: of them, those in the pool.
%% tagged: whether the allocator's blocks bear tags; holds: the allocators whose blocks are in its carriers.
-record(instance, {allocator, number, carriers, bytes, blocks, pool, tagged, holds}).

%% done: {instances, carriers, bytes, us}; seen: {blocks, ns} of those by which the cost of a block is known; failures: instances
%% without an answer in time, after two of which none is tried any more.
-record(walk, {until, kind, walk_pools, measured = #{}, seen = {0, 0}, done = {0, 0, 0, 0}, skipped = [], failures = 0, found = #{}}).

walk_carriers(Params) ->
    Instances = instances(Params),
    Begun = begin_walk(carriers, Params),
    {First, Rest, Known} = measure(Instances, Begun),
    Estimate = estimate(First ++ Rest, Known),
    case Params of
        #{estimate := true} -> #{estimate => Estimate};
        _ ->
            Walk = lists:foldl(fun walk_instance/2, Known, Rest),
            Rows = carrier_rows(Walk#walk.found),
            {Told, Others} = lists:split(min(length(Rows), ?MAX_CARRIER_ROWS), Rows),
            (walked(Walk))#{estimate => Estimate, rows => Told, free_bounds => free_bounds(Rows),
                            left_out => {lists:sum([element(6, R) || R <- Others]), lists:sum([element(7, R) || R <- Others])}}
    end.

begin_walk(Kind, Params) ->
    #walk{until = until(Kind, Params), kind = Kind,
          walk_pools = maps:get(pools, Params, false) =:= true orelse erts_version() >= [15, 1]}.

erts_version() ->
    try [list_to_integer(Part) || Part <- string:lexemes(erlang:system_info(version), ".")] catch error:_ -> [] end.

%% Those of the allocators that were asked for that have any carriers; those with the fewest blocks a byte first, so that where the time
%% does not suffice, most bytes are seen.
instances(Params) ->
    Asked = maps:get(allocators, Params, all),
    All = [instance_of(A, Number, Data)
           || A <- erlang:system_info(alloc_util_allocators), Asked =:= all orelse lists:member(bin(A), Asked),
              {instance, Number, Data} <- system_list({allocator, A})],
    ByDensity = [{I#instance.blocks * 1000000 div I#instance.bytes, I} || #instance{bytes = Bytes} = I <- All, Bytes > 0],
    [I || {_, I} <- lists:sort(ByDensity)].

instance_of(Allocator, Number, Data) ->
    [Mbcs, Pool, Sbcs] = [carriers(Set, Data) || Set <- [mbcs, mbcs_pool, sbcs]],
    Sum = fun(Place) -> lists:sum([max(0, element(Place, Set)) || Set <- [Mbcs, Pool, Sbcs]]) end,
    %% Of a pool whose count of carriers has gone wrong, the blocks are right.
    [Own, Pooled] = [min(2 * Blocks + max(0, Carriers), ?BLOCKS_OF_ONE * max(1, Carriers))
                     || Set <- [Mbcs, Pool], Blocks <- [element(1, Set)], Carriers <- [element(3, Set)]],
    #instance{allocator = Allocator, number = Number, carriers = Sum(3), bytes = Sum(4),
              blocks = Own + Pooled + max(0, element(3, Sbcs)), pool = 2 * element(1, Pool),
              tagged = proplists:get_value(atags, proplists:get_value(options, Data, []), false) =:= true,
              holds = [Of || Set <- [mbcs, mbcs_pool, sbcs], {Of, _} <- proplists:get_value(blocks, proplists:get_value(Set, Data, []), [])]}.

%% Walks a cheap one to learn what a block costs on this node: {[that one], the others, Walk}.
measure(Instances, Walk) ->
    Cheap = [I || #instance{blocks = Blocks} = I <- Instances, Blocks =< ?CHEAP_BLOCKS, may_walk(I, Walk) =:= yes],
    Large = [I || #instance{bytes = Bytes} = I <- Cheap, Bytes >= ?CHEAP_BYTES],
    case lists:reverse(lists:keysort(#instance.blocks, case Large of [] -> Cheap; _ -> Large end)) of
        [] -> {[], Instances, Walk};
        [First | _] ->
            #walk{done = {Count, Carriers, Bytes, Us}, seen = {Blocks, _}} = Known = walk_instance(First, Walk),
            Measured = #{allocator => bin(First#instance.allocator), instance => First#instance.number, carriers => Carriers,
                         bytes => Bytes, blocks => Blocks, us => Us},
            {[First], lists:delete(First, Instances),
             case Count of 0 -> Known; _ -> Known#walk{measured = Measured} end}
    end.

%% What walking all of them takes, and how long at most one thread is held in one go.
estimate(Instances, #walk{measured = Measured} = Walk) ->
    {Walked, Skipped} = lists:partition(fun(I) -> may_walk(I, Walk) =:= yes end, Instances),
    Sum = fun(Place) -> lists:sum([element(Place, I) || I <- Walked]) end,
    Most = lists:max([0 | [I#instance.blocks || I <- Walked]]),
    #{instances => length(Walked), carriers => Sum(#instance.carriers), bytes => Sum(#instance.bytes), blocks => Sum(#instance.blocks),
      us => lists:sum([cost_of(I, Walk) || I <- Walked]) div 1000,
      hold_us => min(Most, ?BLOCKS_BETWEEN + ?BLOCKS_OF_ONE) * block_ns(Walk) div 1000,
      measured => Measured,
      skipped => [skipped_row(I, may_walk(I, Walk)) || I <- Skipped]}.

%% Nanoseconds.
cost_of(#instance{blocks = Blocks}, Walk) -> ?INSTANCE_NS + Blocks * block_ns(Walk).

%% Few blocks tell little: most of their time may be the way to the thread and back, and they may all be in a cache.
block_ns(#walk{seen = {Blocks, Ns}}) when Blocks >= ?MANY_BLOCKS -> Ns div Blocks;
block_ns(#walk{seen = {Blocks, Ns}}) when Blocks >= 1000 -> max(?BLOCK_NS, Ns div Blocks);
block_ns(_) -> ?BLOCK_NS.

may_walk(#instance{pool = Pool}, #walk{walk_pools = false}) when Pool > ?POOL_BLOCKS -> pool;
may_walk(#instance{carriers = Carriers}, _) when Carriers > ?MAX_CARRIERS -> many;
may_walk(_, _) -> yes.

walk_instance(Instance, #walk{kind = Kind, until = Until, failures = Failures} = Walk) ->
    Cost = cost_of(Instance, Walk),
    Begin = now_ns(),
    case may_walk(Instance, Walk) of
        yes when Failures >= 2 -> skip(Instance, no_answer, Walk);
        yes when Begin + Cost > Until -> skip(Instance, limit, Walk);
        yes ->
            Gathered = aside(fun() -> gather(Kind, Instance) end, min(Until, Begin + 4 * Cost + 1000000000)),
            End = now_ns(),
            End - Begin > ?STEP_NS andalso receive after ?STEP_PAUSE_NS div 1000000 -> ok end,
            case Gathered of
                {ok, {Ns, Blocks, Carriers, Bytes, Found}} ->
                    #walk{seen = {AllBlocks, AllNs}, done = {Instances, AllCarriers, AllBytes, Us}} = Walk,
                    Walk#walk{seen = {AllBlocks + Blocks, AllNs + Ns},
                              done = {Instances + 1, AllCarriers + Carriers, AllBytes + Bytes, Us + Ns div 1000},
                              found = maps:fold(fun(Key, Row, All) -> add_row(Key, Row, All) end, Walk#walk.found, Found)};
                late when End >= Until -> skip(Instance, limit, Walk);
                late -> skip(Instance, no_answer, Walk#walk{failures = Failures + 1});
                large -> skip(Instance, many, Walk);
                {failed, _} -> skip(Instance, refused, Walk)
            end;
        Why -> skip(Instance, Why, Walk)
    end.

skip(Instance, Why, #walk{skipped = Skipped} = Walk) ->
    Walk#walk{skipped = [skipped_row(Instance, Why) | Skipped]}.

skipped_row(#instance{allocator = Allocator, number = Number, carriers = Carriers, bytes = Bytes, blocks = Blocks}, Why) ->
    {bin(Allocator), Number, Why, Carriers, Bytes, Blocks}.

walked(#walk{done = {Instances, Carriers, Bytes, Us}, skipped = Skipped}) ->
    #{walked => #{instances => Instances, carriers => Carriers, bytes => Bytes, us => Us}, skipped => lists:reverse(Skipped)}.

%% In the process beside: has one instance walked, and adds up what comes: {nanoseconds, blocks, carriers, bytes, rows}.
gather(carriers, #instance{allocator = Allocator, number = Number}) ->
    {Ns, {Carriers}} = gathered(fun erts_internal:gather_carrier_info/1, {Allocator, Number, ?FREE_SIZES, ?FREE_START}),
    add_carriers(Carriers, Ns, 0, 0, 0, #{});
%% What is not told here is what was counted before.
gather(allocations, #instance{allocator = Allocator, number = Number, carriers = Carriers, bytes = Bytes, blocks = Blocks}) ->
    {Ns, {Unscanned, Tags}} = gathered(fun erts_internal:gather_alloc_histograms/1, {Allocator, Number, ?TAGGED_SIZES, ?TAGGED_START}),
    Rows = lists:foldl(fun({Origin, Type, Sizes}, All) -> add_row({origin(Origin), bin(Type)}, tuple_to_list(Sizes), All) end,
                       #{unscanned => [Unscanned]}, Tags),
    {Ns, Blocks, Carriers, Bytes, Rows}.

%% A driver, a NIF's library, or `system'; on request, which is not made here, also a process or a port.
origin(Atom) when is_atom(Atom) -> bin(Atom);
origin(Other) -> id(Other).

%% Since OTP 27 with flags, and it says so of a tuple without them. Before, it does not look how long the tuple is, and takes what stands
%% at the place of the reference for one, upon which the VM dies: so the short one has to be tried first. What it refuses for another
%% reason, it then refuses again before it comes to that place.
gathered(Gather, {Allocator, Number, Sizes, Start}) ->
    Ref = make_ref(),
    Begin = now_ns(),
    1 = try Gather({Allocator, Number, Sizes, Start, Ref})
        catch error:badarg -> Gather({Allocator, Number, Sizes, Start, 0, Ref})
        end,
    receive
        {Ref, Carriers} -> {now_ns() - Begin, {Carriers}};
        {Ref, Unscanned, Tags} -> {now_ns() - Begin, {Unscanned, Tags}}
    end.

add_carriers([{Allocator, InPool, Size, Unscanned, Blocks, Free} | Carriers], Ns, AllBlocks, Count, Bytes, Rows) ->
    FreeList = tuple_to_list(Free),
    FreeCount = lists:sum(FreeList),
    %% A carrier of one block has nothing beside it, not even its own head, by the VM's account.
    Single = FreeCount =:= 0 andalso Unscanned =:= 0 andalso case Blocks of [{_, 1, Size}] -> true; _ -> false end,
    Used = lists:sum([S || {_, _, S} <- Blocks]),
    Looked = case Unscanned of
                 0 -> lists:sum([C || {_, C, _} <- Blocks]) + FreeCount;
                 _ -> ?BLOCKS_OF_ONE
             end,
    Key = {Allocator, InPool, Single, log2(Size), 10 * Used div Size},
    Row = {1, Size, Unscanned, maps:from_list([{Of, {C, S}} || {Of, C, S} <- Blocks]), FreeList},
    add_carriers(Carriers, Ns, AllBlocks + case Single of true -> 1; false -> Looked end, Count + 1, Bytes + Size,
                 add_row(Key, Row, Rows));
add_carriers([], Ns, Blocks, Count, Bytes, Rows) ->
    {Ns, Blocks, Count, Bytes, Rows}.

%% Of allocations, a row is a histogram alone.
add_row(Key, Row, Rows) when is_list(Row) ->
    case Rows of
        #{Key := Before} -> Rows#{Key := add_lists(Before, Row)};
        _ -> Rows#{Key => Row}
    end;
add_row(Key, {Count, Bytes, Unscanned, Blocks, Free} = Row, Rows) ->
    case Rows of
        #{Key := {Count0, Bytes0, Unscanned0, Blocks0, Free0}} ->
            Joined = maps:fold(fun(Of, {C, S}, All) ->
                                   {C0, S0} = maps:get(Of, All, {0, 0}),
                                   All#{Of => {C0 + C, S0 + S}}
                               end, Blocks0, Blocks),
            Rows#{Key := {Count0 + Count, Bytes0 + Bytes, Unscanned0 + Unscanned, Joined, add_lists(Free0, Free)}};
        _ -> Rows#{Key => Row}
    end.

add_lists(A, B) -> lists:zipwith(fun erlang:'+'/2, A, B).

%% The exponent of the highest power of two that is not larger.
log2(N) when N > 1 -> 1 + log2(N bsr 1);
log2(_) -> 0.

%% Those with the most bytes first.
carrier_rows(Found) ->
    Rows = [{bin(Allocator), InPool, Single, Log2, Tenths, Count, Bytes, Unscanned,
             [{bin(Of), C, S} || {Of, {C, S}} <- maps:to_list(Blocks)], Free}
            || {{Allocator, InPool, Single, Log2, Tenths}, {Count, Bytes, Unscanned, Blocks, Free}} <- maps:to_list(Found)],
    lists:reverse(lists:keysort(7, Rows)).

%% The smallest size of each place of a histogram of free blocks. Until OTP 25, a place ends at a power of two times twice the start, less
%% twice the start. Since 27 it ends at a power of two, and the first place stays empty; 26 is known by that.
free_bounds(Rows) ->
    Release = list_to_integer(erlang:system_info(otp_release)),
    Unit = 2 * ?FREE_START,
    case Release >= 27 orelse Release =:= 26 andalso lists:all(fun(Row) -> hd(element(10, Row)) =:= 0 end, Rows) of
        true -> [0, 0 | [Unit bsl (Place - 2) || Place <- lists:seq(2, ?FREE_SIZES - 1)]];
        false -> [((1 bsl Place) - 1) * Unit || Place <- lists:seq(0, ?FREE_SIZES - 1)]
    end.

%% By whom blocks were allocated, and for what, as far as they bear a tag (+M<S>atags; by default those of binaries and drivers). The VM
%% counts them by size, so how many bytes they are is told about.
walk_allocations(Top, Params) ->
    All = instances(Params),
    Tagged = lists:usort([A || #instance{tagged = true, allocator = A} <- All]),
    Tagged =/= [] orelse throw(unsupported),
    %% Where allocators share a pool (22, 23), most of them may lie in another's carriers.
    Instances = [I || #instance{holds = Holds} = I <- All, lists:any(fun(Of) -> lists:member(Of, Tagged) end, Holds)],
    {First, Rest, Known} = measure(Instances, begin_walk(allocations, Params)),
    #walk{found = Found} = Walk = lists:foldl(fun walk_instance/2, Known, Rest),
    Bounds = tagged_bounds(),
    Rows = lists:reverse(lists:keysort(4, [{Origin, Type, lists:sum(Sizes), about_bytes(Sizes, Bounds), Sizes}
                                           || {{Origin, Type}, Sizes} <- maps:to_list(Found)])),
    {Told, Others} = lists:split(min(length(Rows), Top), Rows),
    (walked(Walk))#{estimate => estimate(First ++ Rest, Known), rows => Told, bounds => Bounds,
                    tagged => [bin(A) || A <- Tagged],
                    unscanned_bytes => lists:sum(maps:get(unscanned, Found, [])),
                    left_out => {length(Others), lists:sum([element(3, R) || R <- Others]), lists:sum([element(4, R) || R <- Others])}}.

%% The smallest size of each place. Until OTP 26, a place ends at a power of two times the start, less the start; since 27 at a power of two
%% times the start.
tagged_bounds() ->
    case list_to_integer(erlang:system_info(otp_release)) >= 27 of
        true -> [0 | [?TAGGED_START bsl (Place - 1) || Place <- lists:seq(1, ?TAGGED_SIZES - 1)]];
        false -> [((1 bsl Place) - 1) * ?TAGGED_START || Place <- lists:seq(0, ?TAGGED_SIZES - 1)]
    end.

%% As if all were as large as the middle of their place.
about_bytes([Count | Counts], [From, To | Bounds]) -> Count * (From + To) div 2 + about_bytes(Counts, [To | Bounds]);
about_bytes([Count], [From]) -> Count * From * 3 div 2.

%%% Code ------------------------------------------------------------------------------------------------------

%% The one source of how large each module is lets no other thread run meanwhile, and waits for all of them to come to rest first. With
%% a scheduler that is inside a long NIF all others would wait for that, so they are asked something else before, which does no harm.
code_memory(Top, Params) ->
    Until = until(code_memory, Params),
    schedulers_answer() orelse error(a_scheduler_does_not_answer),
    case aside(fun() -> loaded(Top) end, Until) of
        {ok, Value} -> Value;
        Why -> error({not_listed, Why})
    end.

%% This asks all of them, and stops none.
schedulers_answer() ->
    Probe = fun() -> erlang:statistics(garbage_collection) end,
    case aside(Probe, now_ns() + ?PROBE_NS, [{priority, high}, max_words(?ASIDE_WORDS)]) of
        {ok, _} -> true;
        _ -> false
    end.

%% Lines of the form `module 123' or `module 123 (45 old)' behind two lines of sums.
loaded(Top) ->
    Begin = now_ns(),
    Text = erlang:system_info(loaded),
    Stopped = now_ns() - Begin,
    [_, _ | Lines] = binary:split(Text, <<"\n">>, [global]),
    Applications = applications_of_modules(),
    {Sums, Unread} = lists:foldl(fun(Line, Sums) -> add_module(Line, Applications, Sums) end, {#{}, 0},
                                 lists:sublist([Line || Line <- Lines, Line =/= <<>>], ?MAX_MODULES)),
    Rows = lists:reverse(lists:keysort(3, [{App, Count, Bytes, Old} || {App, {Count, Bytes, Old}} <- maps:to_list(Sums)])),
    Sum = fun(Place) -> lists:sum([element(Place, Row) || Row <- Rows]) end,
    #{count := Terms, memory := TermBytes} = persistent_term:info(),
    #{rows => lists:sublist(Rows, Top), applications => length(Rows), modules => Sum(2), bytes => Sum(3), old_bytes => Sum(4),
      unread => Unread, stopped_us => Stopped div 1000, persistent_terms => Terms, persistent_term_bytes => TermBytes}.

%% From the application controller's own table, see applications/0; the modules that the VM brings are of no application.
applications_of_modules() ->
    Loaded = ets:select(ac_tab, [{{{loaded, '$1'}, '_'}, [], ['$1']}]),
    Brought = maps:from_list([{bin(M), <<"erts">>} || M <- erlang:pre_loaded()]),
    lists:foldl(fun(App, All) ->
                    case application:get_key(App, modules) of
                        {ok, Modules} -> maps:merge(All, maps:from_list([{bin(M), bin(App)} || M <- Modules]));
                        undefined -> All
                    end
                end, Brought, Loaded).

%% A name may have spaces, within quotes; the numbers stand at the end. No atom is made of it.
add_module(Line, Applications, {Sums, Unread}) ->
    try
        {Name, Size, Old} = case lists:reverse(binary:split(Line, <<" ">>, [global])) of
                                [<<"old)">>, Opened, S | N] -> {N, S, binary:part(Opened, 1, byte_size(Opened) - 1)};
                                [S | N] -> {N, S, <<"0">>}
                            end,
        [Bytes, OldBytes] = [binary_to_integer(B) || B <- [Size, Old]],
        true = Name =/= [] andalso Bytes >= 0 andalso OldBytes >= 0,
        App = maps:get(unquoted(iolist_to_binary(lists:join(<<" ">>, lists:reverse(Name)))), Applications, <<>>),
        {Count0, Bytes0, Old0} = maps:get(App, Sums, {0, 0, 0}),
        {Sums#{App => {Count0 + 1, Bytes0 + Bytes, Old0 + OldBytes}}, Unread}
    catch
        error:_ -> {Sums, Unread + 1}
    end.

unquoted(Name) ->
    case byte_size(Name) > 1 andalso binary:first(Name) =:= $' andalso binary:last(Name) =:= $' of
        true -> binary:part(Name, 1, byte_size(Name) - 2);
        false -> Name
    end.

%%% Locks, where the emulator counts them -------------------------------------------------------------------------

%% The emulator for that (-emu_type lcnt) has one set of counters, and one mask that says which categories of locks are counted. So one
%% client counts at a time, whatever its version, and what the mask was is put back by a process that is linked to nobody. What an
%% emulator tells, in all releases from 23 to 29 (erl_bif_info.c):
%%
%% [{duration, {S, Ns}}, {locks, [{Class, Id, Kind, [{{File, Line}, {Tries, Collisions, {S, Ns, Waits}}, Histogram}]}]}]
locks(Top, Params, State) ->
    limit_ms({locks, Params}) > counted_ms(Params) orelse error(limit_ms_is_not_above_for_ms),
    Until = until(locks, Params),
    Categories = categories(Params),
    case catch erlang:system_info(lock_counting) of
        true ->
            Look = fun() -> {erts_debug:lcnt_control(copy_save), expected_locks(Categories, erts_debug:lcnt_control(mask))} end,
            case aside(Look, Until, [{priority, high}, max_words(?ASIDE_WORDS)]) of
                {ok, {true, Expected}} -> #{told => copy_save, estimate => Expected};
                {ok, {false, Expected}} -> locks_or_cost(Top, Categories, Expected, Params, Until, State);
                late -> #{told => no_answer};
                Why -> error({not_estimated, Why})
            end;
        _ -> #{told => not_lcnt}
    end.

counted_ms(Params) -> bounded(for_ms, Params, ?LEAST_COUNTED_MS, ?COUNTED_MS, ?MOST_COUNTED_MS).

%% All but those of processes, of which there may be very many, and those of tools.
categories(#{categories := Asked}) when is_list(Asked) ->
    case [C || C <- all_categories(), lists:member(bin(C), Asked)] of
        [] -> error(no_such_category);
        Known -> Known
    end;
categories(_) -> all_categories() -- [debug, process].

all_categories() -> [allocator, db, debug, distribution, generic, io, process, scheduler].

%% What collecting their counts would cost. How many locks there are is not told before: so it goes by what there is to be locked.
expected_locks(Categories, Mask) ->
    Processes = erlang:system_info(process_count),
    Tables = erlang:system_info(ets_count),
    OfProcesses = case lists:member(process, Categories) of true -> ?LOCKS_OF_PROCESS * Processes; false -> 0 end,
    Others = ?LOCKS_OF_VM + ?LOCKS_OF_SCHEDULER * erlang:system_info(schedulers)
        + lists:sum([locks_of(Category) || Category <- Categories]),
    Word = erlang:system_info(wordsize),
    Cells = ?MAX_PLACES * ?CELLS,
    New = case lists:member(process, Mask) of true -> 0; false -> OfProcesses * ?COUNTED_LOCK_BYTES end,
    Expected = #{locks => OfProcesses + Others, processes => Processes, tables => Tables,
                 bytes => New + (OfProcesses * ?PROCESS_LOCK_WORDS + Others * ?LOCK_WORDS + Cells) * Word,
                 new_bytes => New,
                 reserved_bytes => (OfProcesses * ?PROCESS_LOCK_ROOM + Others * ?LOCK_ROOM + Cells) * Word},
    case available_bytes() of
        unknown -> Expected;
        Available -> Expected#{available_bytes => Available}
    end.

locks_of(io) ->
    ?LOCKS_OF_PORT * erlang:system_info(port_count) + ?LOCKS_OF_SOCKET * maps:get(num_sockets, sockets(), 0);
locks_of(db) ->
    Tables = ets:all(),
    Looked = lists:sublist(Tables, ?LOOKED_AT_TABLES),
    Fine = length([T || T <- Looked, Finely <- [ets:info(T, write_concurrency)], Finely =/= false, Finely =/= undefined]),
    Count = length(Tables),
    ?LOCKS_OF_TABLE * Count + ?SLOTS_OF_TABLE * Fine * Count div max(1, length(Looked));
locks_of(distribution) -> ?LOCKS_OF_NODE * length(nodes(known));
locks_of(process) -> ?LOCKS_FOR_PROCESSES;
locks_of(_) -> 0.

%% What the host and the control groups that the VM is in have left, in bytes. A VM that cannot have the memory that it asks for dies, and
%% one that uses more than its group may have is killed.
available_bytes() ->
    Host = case number_after(<<"MemAvailable:">>, <<"/proc/meminfo">>) of
               unknown -> [];
               KiB -> [1024 * KiB]
           end,
    Groups = case prim_file:read_file(<<"/proc/self/cgroup">>) of
                 {ok, Text} -> lists:append([group_left(Line) || Line <- binary:split(Text, <<"\n">>, [global, trim_all])]);
                 _ -> []
             end,
    %% Any number is less than that.
    lists:min([unknown | Host ++ Groups]).

%% NUMBER:CONTROLLERS:PATH, which may hold colons. Where the mount shows a container's own group only, that is all that is found.
group_left(Line) ->
    [_, Group] = binary:split(Line, <<":">>),
    [Controllers, Path] = binary:split(Group, <<":">>),
    case lists:member(<<"memory">>, binary:split(Controllers, <<",">>, [global])) of
        true ->
            folders_left(folders(<<"/sys/fs/cgroup/memory">>, Path), <<"/memory.limit_in_bytes">>, <<"/memory.usage_in_bytes">>,
                         <<"total_inactive_file">>);
        false when Controllers =:= <<>> ->
            folders_left(folders(<<"/sys/fs/cgroup">>, Path), <<"/memory.max">>, <<"/memory.current">>, <<"inactive_file">>);
        false -> []
    end.

%% The group's folder and all above it. A group outside of those that the VM may see has only the mount.
folders(Mount, Path) ->
    Parts = binary:split(Path, <<"/">>, [global, trim_all]),
    Below = case lists:member(<<"..">>, Parts) of true -> []; false -> Parts end,
    lists:foldl(fun(Part, [Folder | _] = Folders) -> [<<Folder/binary, "/", Part/binary>> | Folders] end, [Mount], Below).

%% What a group has of files that nobody has used for long is given up first.
folders_left(Folders, Limit, Usage, Files) ->
    [max(0, Most - max(0, Used - Inactive))
     || Folder <- Folders,
        Most <- [number_after(<<>>, <<Folder/binary, Limit/binary>>)], is_integer(Most),
        Used <- [number_after(<<>>, <<Folder/binary, Usage/binary>>)], is_integer(Used),
        Inactive <- [case number_after(Files, <<Folder/binary, "/memory.stat">>) of unknown -> 0; Bytes -> Bytes end]].

%% The number in the line that begins with that word; without one, the file's.
number_after(Word, Path) ->
    case prim_file:read_file(Path) of
        {ok, Text} ->
            Lines = [string:lexemes(Line, " ") || Line <- binary:split(Text, <<"\n">>, [global, trim_all])],
            Found = [Number || [Key, Number | _] <- Lines, Key =:= Word] ++ [Number || Word =:= <<>>, [Number] <- Lines],
            try binary_to_integer(hd(Found)) catch error:badarg -> unknown end;
        _ -> unknown
    end.

locks_or_cost(_, _, Expected, #{estimate := true}, _, _) -> #{told => ok, estimate => Expected};
locks_or_cost(Top, Categories, #{reserved_bytes := Reserved, new_bytes := New} = Expected, Params, Until, State) ->
    Most = bounded(max_bytes, Params, 1, 1073741824, 1 bsl 40),
    case Expected of
        _ when Reserved > Most -> #{told => too_large, estimate => Expected};
        #{available_bytes := Available} when Reserved + New > Available div 2 -> #{told => too_large, estimate => Expected};
        _ ->
            Word = erlang:system_info(wordsize),
            Room = [{min_heap_size, Reserved div Word},
                    %% An `atomics' array counts as a binary, for which else all would be moved.
                    {min_bin_vheap_size, 4 * ?MAX_PLACES * ?CELLS},
                    max_words(max(2 * Reserved, Most) div Word)],
            Ms = counted_ms(Params),
            Counted = count_locks(Top, Categories, Room, Ms, Until),
            told_locks(Counted#{categories => [bin(C) || C <- Categories], estimate => Expected}, Ms, State)
    end.

%% Has the mask set, counts, and has the counts added up in a process beside: they are built where they stay, in a heap that has room
%% for them and for what adding up leaves behind, so that nothing is ever copied or moved.
count_locks(Top, Categories, Room, Ms, Until) ->
    Collector = self(),
    %% Nothing may be printed, so it must not die of an error either.
    {Holder, Monitor} = spawn_opt(fun() -> catch hold_mask(Collector, Categories, Until) end, [monitor, {priority, high}]),
    {Began, Mask, LeftOut} = await_counting(Holder, Monitor, none, [], Until),
    Collected = case Began of
                    {counting, Before} ->
                        receive
                            {'DOWN', Monitor, process, _, _} -> lost
                        after Ms -> aside(fun() -> collect_locks(Top, Before) end, Until, [{priority, high} | Room])
                        end;
                    NotBegun -> NotBegun
                end,
    demonitor(Monitor, [flush]),
    mask_back(Holder, Categories, Mask, Until),
    case Collected of
        {ok, #{end_ns := End} = Counted} ->
            Counted#{told => ok, left_out => [bin(C) || C <- LeftOut], us => (now_ns() - End) div 1000};
        {failed, Why} -> error({not_collected, Why});
        large -> #{told => too_large};
        late -> #{told => limit};
        NotCounted -> #{told => NotCounted}
    end.

%% {{counting, reductions until then} or why not, the mask to be put back, what is not put back}
await_counting(Holder, Monitor, Mask, LeftOut, Until) ->
    receive
        {Holder, mask, PutBack, Rest} -> await_counting(Holder, Monitor, PutBack, Rest, Until);
        {Holder, counting, Reductions} -> {{counting, Reductions}, Mask, LeftOut};
        {Holder, refused, Why} -> {Why, Mask, LeftOut};
        {'DOWN', Monitor, process, _, _} -> {lost, Mask, LeftOut}
    after max(0, (Until - now_ns()) div 1000000) -> {no_answer, Mask, LeftOut}
    end.

%% Has the mask put back by who holds it, or does so itself if somebody has ended that one.
mask_back(Holder, Categories, Mask, Until) ->
    Monitor = monitor(process, Holder),
    Holder ! {self(), counted},
    receive
        {'DOWN', Monitor, process, _, Why} when Why =:= normal; Mask =:= none -> ok;
        {'DOWN', Monitor, process, _, _} ->
            aside(fun() -> reset_mask(Categories, Mask) end, max(Until, now_ns() + ?MASK_LATE_MS * 1000000))
    after max(?MASK_LATE_MS, (Until - now_ns()) div 1000000) ->
        %% It does so when it comes to it.
        demonitor(Monitor, [flush])
    end.

%% Sets the mask, begins, and puts the mask back when the client says so or ends, or all of its time is over. Each of these calls runs on
%% a dirty scheduler, and waits until there is one.
hold_mask(Client, Categories, Until) ->
    Monitor = monitor(process, Client),
    case catch register(?COUNTS_LOCKS, self()) of
        true ->
            case erts_debug:lcnt_control(copy_save) of
                %% What it is now counting and then is not would be kept, as that of locks that have gone.
                true -> Client ! {self(), refused, copy_save};
                false ->
                    Before = erts_debug:lcnt_control(mask),
                    %% The client may have given up meanwhile.
                    is_over(Client, Monitor, 0) orelse hold_mask(Client, Monitor, Categories, Before, Until)
            end;
        _ -> Client ! {self(), refused, busy}
    end.

hold_mask(Client, Monitor, Categories, Before, Until) ->
    PutBack = put_back(Categories, Before),
    %% Should somebody end this process, the client puts it back.
    Client ! {self(), mask, PutBack, Before -- PutBack},
    try
        set_mask(Before, Categories),
        erts_debug:lcnt_clear(),
        {Reductions, _} = erlang:statistics(reductions),
        Client ! {self(), counting, Reductions},
        is_over(Client, Monitor, max(0, (Until - now_ns()) div 1000000 + ?GRACE_MS))
    after reset_mask(Categories, PutBack)
    end.

%% What processes' locks gave up when they were left out lies in carriers of each scheduler, where other blocks keep them; what they are
%% given anew comes from those of no scheduler. With 100,000 processes the VM would have 500 MB more of the host's memory than before.
put_back(Categories, Before) ->
    case erlang:system_info(process_count) > ?PROCESSES_PUT_BACK andalso not lists:member(process, Categories) of
        true -> Before -- [process];
        false -> Before
    end.

is_over(Client, Monitor, Ms) ->
    receive
        {Client, counted} -> true;
        {put_back, ?MODULE} -> true;
        {'DOWN', Monitor, process, _, _} -> true
    after Ms -> false
    end.

set_mask(From, To) -> lists:sort(From) =:= lists:sort(To) orelse erts_debug:lcnt_control(mask, To).

%% What somebody else has set meanwhile is his, and stays.
reset_mask(Categories, Mask) ->
    lists:sort(erts_debug:lcnt_control(mask)) =:= Categories andalso set_mask(Categories, Mask).

%% A purge ends whoever runs this module: so it is waited for whoever holds the mask. One of another version pays no heed, and need not.
mask_is_back() ->
    case whereis(?COUNTS_LOCKS) of
        undefined -> true;
        Holder ->
            Monitor = monitor(process, Holder),
            Holder ! {put_back, ?MODULE},
            receive {'DOWN', Monitor, process, _, _} -> true after ?MASK_MS -> false end
    end.

-record(counts, {places = #{}, cells, unplaced = 0}).
-record(longest, {top, least = {0, 0, 0}, count = 0, locks = []}).

%% In the process beside, at priority high, so that what is counted ends in time. Before: reductions at the beginning.
collect_locks(Top, Before) ->
    {Reductions, _} = erlang:statistics(reductions),
    Processes = erlang:system_info(process_count),
    End = now_ns(),
    Counts = erts_debug:lcnt_collect(),
    Mask = lists:sort(erts_debug:lcnt_control(mask)),
    {_, Locks} = lists:keyfind(locks, 1, Counts),
    length(Locks) > ?LOCKS_AT_ONCE andalso process_flag(priority, normal),
    (summed(Top, Counts))#{end_ns => End, mask => [bin(C) || C <- Mask], reductions => Reductions - Before, processes => Processes}.

%% What all of it says, as it is told. This alone is what lcnt's own tables are held against.
summed(Top, Told) ->
    {_, {S, Ns}} = lists:keyfind(duration, 1, Told),
    {_, Locks} = lists:keyfind(locks, 1, Told),
    Cells = atomics:new(?MAX_PLACES * ?CELLS, []),
    {Count, Counts, Longest} = add_locks(Locks, 0, #counts{cells = Cells}, #longest{top = Top}),
    Classes = class_rows(Counts),
    Room = max(0, ?MAX_LOCK_ROWS - lists:sum([length(Places) || {_, _, _, Places} <- Classes])),
    Singles = fitting((longest(Longest))#longest.locks, Room * ?SINGLES_PERMILLE div 1000),
    Rows = [{bin(Class), bin(Kind), Id, 1, [place(P) || P <- Places, is_taken(P)]}
            || {_, _, {Class, Id, Kind, Places}} <- Singles],
    Left = Room - lists:sum([length(Places) || {_, _, _, _, Places} <- Rows]),
    Rests = fitting_rows(rests(Singles, Locks), Left),
    #{duration_us => 1000000 * S + Ns div 1000, locks => Count, unplaced => Counts#counts.unplaced, singles => length(Singles),
      classes => Classes, rows => Rows ++ Rests, cost_bytes => collected_bytes(Count, Counts)}.

%% What the counts were as a term, the list from which the VM has made it, and about what adding them up has left behind. How much of a
%% heap is used does nobody tell whose it is.
collected_bytes(Locks, #counts{places = Known, cells = Cells}) ->
    Places = lists:sum([atomics:get(Cells, At + 1) || At <- maps:values(Known)]),
    erlang:system_info(wordsize) * (Locks * (?WORDS_OF_LOCK + ?LEFT_OF_LOCK + 2) + Places * ?WORDS_OF_PLACE + ?MAX_PLACES * ?CELLS).

%% {how many, sums of all classes by place, those that were waited for the longest}; next to nothing is left behind on the heap.
add_locks([{Class, Id, Kind, Places} = Lock | Locks], Index, Counts, Longest) ->
    Added = lists:foldl(fun(Place, C) -> add_place(Class, Kind, Place, C) end, Counts, Places),
    Next = case Id of
               %% One that has no name of its own is told with its class.
               [] -> Longest;
               _ -> add_longest(sums(Places, 0, 0, 0), Index, Lock, Longest)
           end,
    add_locks(Locks, Index + 1, Added, Next);
add_locks([], Count, Counts, Longest) -> {Count, Counts, Longest}.

add_place(Class, Kind, {{File, Line}, Numbers, Histogram}, #counts{places = Places, cells = Cells} = Counts) ->
    Key = {Class, Kind, File, Line},
    case Places of
        #{Key := At} -> add_cells(At, Numbers, Histogram, Cells), Counts;
        _ when map_size(Places) < ?MAX_PLACES ->
            At = map_size(Places) * ?CELLS,
            add_cells(At, Numbers, Histogram, Cells),
            Counts#counts{places = Places#{Key => At}};
        _ -> Counts#counts{unplaced = Counts#counts.unplaced + 1}
    end.

add_cells(At, {0, 0, {0, 0, 0}}, _, Cells) -> atomics:add(Cells, At + 1, 1);
add_cells(At, {Tries, Collisions, {_, _, Waits} = Waited}, Histogram, Cells) ->
    atomics:add(Cells, At + 1, 1),
    atomics:add(Cells, At + 2, Tries),
    atomics:add(Cells, At + 3, Collisions),
    atomics:add(Cells, At + 4, waited_us(Waited)),
    atomics:add(Cells, At + 5, Waits),
    Waits > 0 andalso add_bins(tuple_size(Histogram), max(0, ?BINS - tuple_size(Histogram)), Histogram, At + 5, Cells).

%% Where the clock is no better, there are 20, of which the first one is for all below 2^11 ns.
add_bins(0, _, _, _, _) -> ok;
add_bins(N, Shift, Histogram, At, Cells) ->
    case element(N, Histogram) of
        0 -> ok;
        Count -> atomics:add(Cells, At + min(?BINS, N + Shift), Count)
    end,
    add_bins(N - 1, Shift, Histogram, At, Cells).

%% As lcnt does, for each lock and place.
waited_us({S, Ns, _}) -> 1000000 * S + Ns div 1000.

%% {waited, collisions, tries} of a lock: by these it stands out.
sums([{_, {Tries0, Collisions0, Waited0}, _} | Places], Waited, Collisions, Tries) ->
    sums(Places, Waited + waited_us(Waited0), Collisions + Collisions0, Tries + Tries0);
sums([], Waited, Collisions, Tries) -> {Waited, Collisions, Tries}.

add_longest(Sums, _, _, #longest{least = Least} = Longest) when Sums =< Least -> Longest;
add_longest(Sums, Index, Lock, #longest{top = Top, count = Count, locks = Locks} = Longest) ->
    Next = Longest#longest{count = Count + 1, locks = [{Sums, Index, Lock} | Locks]},
    case Count > 2 * Top + 100 of
        true -> longest(Next);
        false -> Next
    end.

%% Only the top ones, highest first.
longest(#longest{top = Top, locks = Locks} = Longest) ->
    Kept = lists:sublist(lists:reverse(lists:sort(Locks)), Top),
    Least = case length(Kept) of Top -> element(1, lists:last(Kept)); _ -> Longest#longest.least end,
    Longest#longest{least = Least, count = length(Kept), locks = Kept}.

%% The first ones whose places have room.
fitting([{_, _, {_, _, _, Places}} = Lock | Locks], Room) ->
    case Room - length([P || P <- Places, is_taken(P)]) of
        Left when Left >= 0 -> [Lock | fitting(Locks, Left)];
        _ -> []
    end;
fitting([], _) -> [].

fitting_rows([{_, _, _, _, Places} = Row | Rows], Room) when length(Places) =< Room ->
    [Row | fitting_rows(Rows, Room - length(Places))];
fitting_rows(_, _) -> [].

%% {Class, Kind, Locks, [Place]}: those that were waited for the longest first. One in which nothing was taken is told all the same.
class_rows(#counts{places = Places, cells = Cells}) ->
    Classes = maps:fold(fun({Class, Kind, File, Line}, At, All) ->
                            [Locks | Numbers] = [atomics:get(Cells, At + N) || N <- lists:seq(1, ?CELLS)],
                            {Most, Found} = maps:get({Class, Kind}, All, {0, []}),
                            All#{{Class, Kind} => {max(Most, Locks), [row(File, Line, Numbers) || lists:sum(Numbers) > 0] ++ Found}}
                        end, #{}, Places),
    Waited = fun(Rows) -> lists:sum([element(5, Row) || Row <- Rows]) end,
    Sorted = lists:reverse(lists:sort([{Waited(Rows), bin(Class), bin(Kind), Locks, Rows}
                                       || {{Class, Kind}, {Locks, Rows}} <- maps:to_list(Classes)])),
    [{Class, Kind, Locks, or_nothing(Rows)} || {_, Class, Kind, Locks, Rows} <- Sorted].

or_nothing([]) -> [row(undefined, 0, [0, 0, 0, 0])];
or_nothing(Rows) -> Rows.

is_taken({_, Numbers, _}) -> Numbers =/= {0, 0, {0, 0, 0}}.

place({{File, Line}, Numbers, Histogram}) -> row(File, Line, numbers(Numbers, Histogram)).

%% [Tries, Collisions, Microseconds, Waits | Bins]
numbers({Tries, Collisions, {_, _, Waits} = Waited}, Histogram) ->
    Shift = max(0, ?BINS - tuple_size(Histogram)),
    [Tries, Collisions, waited_us(Waited), Waits
     | lists:duplicate(Shift, 0) ++ lists:sublist(tuple_to_list(Histogram), ?BINS)].

%% {File, Line, Tries, Collisions, Microseconds, Waits, Bins}, without the zeros at the end.
row(File, Line, [Tries, Collisions, Us, Waits | Bins]) ->
    Named = case File of undefined -> undefined; _ -> bin(File) end,
    Kept = lists:reverse(lists:dropwhile(fun(Count) -> Count =:= 0 end, lists:reverse(Bins))),
    {Named, Line, Tries, Collisions, Us, Waits, Kept}.

%% Several locks may have one name, as the slots of a table have: what is left of the names of those that stand out, by name.
rests(Singles, Locks) ->
    Names = maps:from_list([{{Class, Id}, true} || {_, _, {Class, Id, Kind, _}} <- Singles, Kind =/= proclock]),
    Alone = maps:from_list([{Index, true} || {_, Index, _} <- Singles]),
    case map_size(Names) of
        0 -> [];
        _ -> [{bin(Class), bin(Kind), Id, Count, or_nothing([row(File, Line, N) || {{File, Line}, N} <- maps:to_list(Places)])}
              || {{Class, Id}, {Kind, Count, Places}} <- maps:to_list(add_rests(Locks, 0, Names, Alone, #{}))]
    end.

add_rests([{_, _, proclock, _} | Locks], Index, Names, Alone, Rests) -> add_rests(Locks, Index + 1, Names, Alone, Rests);
add_rests([{Class, Id, Kind, Places} | Locks], Index, Names, Alone, Rests) ->
    Key = {Class, Id},
    case Names of
        #{Key := _} when not is_map_key(Index, Alone) ->
            {_, Count, Before} = maps:get(Key, Rests, {Kind, 0, #{}}),
            After = lists:foldl(fun add_rest/2, Before, Places),
            add_rests(Locks, Index + 1, Names, Alone, Rests#{Key => {Kind, Count + 1, After}});
        _ -> add_rests(Locks, Index + 1, Names, Alone, Rests)
    end;
add_rests([], _, _, _, Rests) -> Rests.

add_rest({At, Numbers, Histogram} = Place, Places) ->
    case {is_taken(Place), Places} of
        {false, _} -> Places;
        {true, #{At := Before}} -> Places#{At := add_lists(Before, numbers(Numbers, Histogram))};
        {true, _} -> Places#{At => numbers(Numbers, Histogram)}
    end.

%%% Whose locks these are

%% The counts as they are told: with what each single lock belongs to, as long as there is time to ask.
told_locks(#{told := ok, rows := Rows, duration_us := Us, mask := Mask, categories := Categories} = Counted, Ms, State) ->
    Things = lists:usort([Thing || {Class, Kind, Id, _, _} <- Rows, Thing <- [thing(Class, Kind, Id)], Thing =/= none]),
    Tables = tables_named([Name || {table, Name} <- Things], State),
    Features = State#state.features,
    Known = maps:from_list(details(fun(Thing) -> belongs(Thing, Tables, Features) end, Things, State#state{deadline_ns = now_ns()})),
    Told = [{Class, Kind, lock_id(Id), maps:get(entity, maps:get(thing(Class, Kind, Id), Known, #{}), undefined), Locks, Places}
            || {Class, Kind, Id, Locks, Places} <- Rows],
    %% Somebody else has set another mask, or has begun to count anew.
    Disturbed = Mask =/= Categories orelse Us < Ms * 980,
    {(maps:without([mask], Counted))#{rows => Told, disturbed => Disturbed}, State};
told_locks(Counted, _, State) -> {Counted, State}.

lock_id(Id) when is_integer(Id) -> integer_to_binary(Id);
lock_id(Id) when is_pid(Id); is_port(Id); is_reference(Id); is_atom(Id) -> id(Id);
lock_id(Id) -> text(Id).

thing(_, _, Id) when is_pid(Id) -> {process, Id};
thing(_, _, Id) when is_port(Id) -> {port, Id};
thing(_, Kind, Id) when is_atom(Id), Kind =:= <<"proclock">> -> {registered, Id};
thing(Class, _, Id) when is_atom(Id) ->
    case lists:member(Class, [<<"db_tab">>, <<"db_tab_fix">>, <<"db_hash_slot">>, <<"erl_db_catree_base_node">>,
                              <<"erl_db_catree_route_node">>]) of
        true -> {table, Id};
        false -> none
    end;
thing(_, _, _) -> none.

%% #{Name => {how many tables have it, one of them}}. Where there are very many, only what is a table's own name is known.
tables_named([], _) -> #{};
tables_named(Names, State) ->
    Wanted = maps:from_list([{Name, {0, none}} || Name <- Names]),
    case erlang:system_info(ets_count) of
        Count when Count > ?BOOK -> maps:from_list([{Name, {1, Name}} || Name <- Names, ets:info(Name, owner) =/= undefined]);
        _ -> tables_named(ets:all(), Wanted, State)
    end.

tables_named([], Found, _) -> Found;
tables_named(Tables, Found, State) ->
    {Some, _, Rest} = take(?CHUNK, Tables, Tables),
    Add = fun(Table, Name, All) ->
              case All of
                  #{Name := {Count, _}} -> All#{Name := {Count + 1, Table}};
                  _ -> All
              end
          end,
    Names = read_all(fun(Table, _) -> ets:info(Table, name) end, Some),
    tables_named(Rest, add_all(Some, Names, Add, Found), rest(State)).

%% In the reader: #{entity => Bin}, or `undefined'.
belongs({process, Pid}, _, Features) -> entity(called(identity(Pid, Features)));
belongs({registered, Name}, _, Features) ->
    case whereis(Name) of
        Pid when is_pid(Pid) ->
            case identity(Pid, Features) of
                #{} = Identity -> entity(called(maps:remove(name, Identity)));
                undefined -> undefined
            end;
        _ -> undefined
    end;
belongs({port, Port}, _, Features) ->
    case {erlang:port_info(Port, name), erlang:port_info(Port, connected)} of
        {{_, Name}, {_, Owner}} -> entity(of_owner(kind(Name), Owner, Features));
        _ -> undefined
    end;
belongs({table, Name}, Tables, Features) ->
    case Tables of
        #{Name := {1, Table}} ->
            case ets:info(Table, owner) of
                Owner when is_pid(Owner) -> entity(of_owner(bin(Name), Owner, Features));
                undefined -> undefined
            end;
        #{Name := {Count, _}} when Count > 1 -> entity(<<"one of ", (integer_to_binary(Count))/binary, " tables">>);
        _ -> undefined
    end.

entity(Text) when Text =:= <<>> -> undefined;
entity(Text) -> #{entity => cut(Text, ?TEXT_BYTES)}.

%% A process as its users know it: by its name, its label, or what it runs.
called(#{name := Name}) -> Name;
called(#{label := Label}) -> Label;
called(#{call := {Module, Function, Arity}}) -> <<Module/binary, ":", Function/binary, "/", (integer_to_binary(Arity))/binary>>;
called(#{call := {child_of, Maker}}) -> <<"child of ", Maker/binary>>;
called(_) -> <<>>.

of_owner(Thing, Owner, Features) ->
    Of = case called(identity(Owner, Features)) of
             Called when Called =/= <<>> -> Called;
             _ -> id(Owner)
         end,
    <<Thing/binary, " of ", Of/binary>>.

%%% Who holds binaries ----------------------------------------------------------------------------------------

%% Those that refer to the most bytes by their garbage collector's count, or those that are named. That count is of references: what
%% several hold, or one holds twice, counts each time. So each is asked which binaries it refers to.
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
    Asked = [{Pid, Heap, asked_binaries(Pid, Table, Until)} || {Pid, Heap} <- Found],
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

%% Which binaries were seen, so that each is counted once over all processes. It is freed at priority normal.
binaries_table() ->
    Collector = self(),
    Owner = spawn_opt(fun() ->
                          Collector ! {self(), ets:new(?MODULE, [public])},
                          receive close -> process_flag(priority, normal) end
                      end, [link, {priority, high}]),
    receive {Owner, Table} -> {Owner, Table} end.

asked_binaries(Pid, Table, Until) ->
    case now_ns() of
        Now when Now >= Until -> #{told => limit};
        Now ->
            case aside(fun() -> binaries_of(Pid, Table) end, min(Until, Now + ?HELD_NS)) of
                {ok, Held} -> Held;
                late -> #{told => no_answer};
                large -> #{told => many};
                {failed, _} -> #{told => refused}
            end
    end.

%% In the process beside, because a list of all references can be long, and because asking may hang.
binaries_of(Pid, Table) ->
    case process_info(Pid, binary) of
        {binary, References} ->
            Room = ?MAX_BINARIES - ets:info(Table, size),
            Held = #{references => length(References), binaries => 0, bytes => 0, alone => 0, alone_bytes => 0, new => 0, new_bytes => 0},
            count_binaries(lists:sort(References), Table, Room, Held);
        undefined -> #{told => gone}
    end.

%% Sorted, so what it refers to more than once stands together. Nobody else holds what has no more references than its own.
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

%%% Collections that somebody has asked for --------------------------------------------------------------------

%% sums: words before and after, of heaps and of binaries; by_chance, while those are collected: how many of them, then what each gave
%% back of its heap, in whole KiB, and its squares, and the same of binaries.
-record(collecting, {until, batch, pause_ms, latency_ms, queue_limit, heap_words, word, top,
                     collected = 0, gone = 0, no_answer = 0, large = 0, sums = {0, 0, 0, 0}, by_chance = none, ns = 0,
                     longest_ns = 0, late_ms = 0, queue = 0}).

%% One process after the other, and others have their turn between batches. This goes on at priority normal: a process collects at the
%% priority of who has asked for it, and so the collector learns as any other process how long one has to wait.
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

%% Of all processes so many thousandths, but no more than Most: a quarter of them the largest ones (by heap and binaries), which would
%% else make a sample say little; the others by chance and in an order of chance, so those that have had their turn when the time is
%% over are as good a sample as all. None of the rest is larger than the smallest of the largest ones was.
chosen(Share, Most, Until, #state{own = Own} = State) ->
    Seed = erlang:unique_integer(),
    Count = max(1, erlang:system_info(process_count)),
    Wanted = min(Most, (Count * Share + 999) div 1000),
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
        each_process(Chunk, {top(max(1, min(?MOST_LARGEST, Wanted div 4))), []}, (now_ns() + Until) div 2, State),
    Largest = [Pid || {_, Pid} <- top_list(Top)],
    Known = maps:from_list([{Pid, []} || Pid <- Largest]),
    Others = [Pid || {_, Pid} <- lists:sort(Found), not maps:is_key(Pid, Known)],
    Rest = case Left of 0 -> Lowest; _ -> 0 end,
    {sample, max(0, Scanned - length(Own)), Rest, Largest, lists:sublist(Others, max(0, Wanted - length(Largest))), Next}.

%% In bytes; nothing where an allocator is disabled.
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

%% How much too late its end comes is how long others have to wait for a scheduler; half a millisecond more or less is none.
pause(#collecting{pause_ms = Pause, late_ms = Late, queue = Queue} = Collecting) ->
    Begin = now_ns(),
    receive after Pause -> ok end,
    Ms = (now_ns() - Begin - 500000) div 1000000 - Pause,
    Collecting#collecting{late_ms = max(Late, Ms), queue = max(Queue, erlang:statistics(total_run_queue_lengths))}.

collect_one(Pid, #collecting{until = Until} = Collecting) ->
    case now_ns() >= Until of
        %% A request that nobody waits for would be done all the same.
        true -> Collecting;
        false -> collect_one(Pid, heaps_of([Pid]), Collecting)
    end.

collect_one(Pid, Heaps, #collecting{until = Until, heap_words = Most} = Collecting) ->
    case Heaps of
        [{Words, _}] when Words > Most -> Collecting#collecting{large = Collecting#collecting.large + 1};
        [{_, _} = Before] ->
            Ref = make_ref(),
            Begin = now_ns(),
            erlang:garbage_collect(Pid, [{async, Ref}]),
            receive
                {garbage_collect, Ref, true} -> collected(Pid, Before, heaps_of([Pid]), now_ns() - Begin, Collecting);
                {garbage_collect, Ref, false} -> Collecting#collecting{gone = Collecting#collecting.gone + 1}
            after max(0, min(?COLLECTED_MS, (Until - Begin) div 1000000)) ->
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

%%% Terms as data --------------------------------------------------------------------------------------------

now_ns() -> erlang:monotonic_time(nanosecond).

now_ms() -> erlang:monotonic_time(millisecond).

%% Names and known strings as UTF-8, cut.
bin(Atom) when is_atom(Atom) -> cut(atom_to_binary(Atom, utf8), ?NAME_BYTES);
bin(Binary) when is_binary(Binary) -> cut(Binary, ?NAME_BYTES);
bin(Text) when is_list(Text) ->
    case catch unicode:characters_to_binary(Text) of
        Binary when is_binary(Binary) -> cut(Binary, ?TEXT_BYTES);
        _ -> <<"?">>
    end;
bin(_) -> <<"?">>.

id(Pid) when is_pid(Pid) -> list_to_binary(pid_to_list(Pid));
id(Port) when is_port(Port) -> list_to_binary(erlang:port_to_list(Port));
id(Ref) when is_reference(Ref) -> list_to_binary(ref_to_list(Ref));
id(Atom) when is_atom(Atom) -> bin(Atom);
id(_) -> <<>>.

mfa({Module, Function, Arity}) when is_atom(Module), is_atom(Function), is_integer(Arity) ->
    {bin(Module), bin(Function), Arity};
mfa({Module, Function, Args}) when is_atom(Module), is_atom(Function), is_list(Args) ->
    {bin(Module), bin(Function), case catch length(Args) of N when is_integer(N) -> N; _ -> 0 end};
mfa(_) -> undefined.

%% Any term as a short text: strings as they are, all else as ~p would print it.
text(Term) ->
    try
        case is_binary(Term) of
            true -> unicode:characters_to_binary(cut(Term, ?TEXT_BYTES));
            false -> is_list(Term) andalso io_lib:printable_unicode_list(Term) andalso bin(Term)
        end
    of
        Text when is_binary(Text) -> Text;
        _ -> print(Term)
    catch
        _:_ -> <<"?">>
    end.

print(Term) ->
    cut(unicode:characters_to_binary(io_lib:format("~0tP", [Term, 20], [{chars_limit, 400}])), ?TEXT_BYTES).

%% At most so many bytes, cut between characters.
cut(Binary, Max) when byte_size(Binary) =< Max -> Binary;
cut(Binary, Max) ->
    case binary:at(Binary, Max) of
        Continuation when Continuation band 2#11000000 =:= 2#10000000 -> cut_before(Binary, Max - 1);
        _ -> binary:part(Binary, 0, Max)
    end.

cut_before(Binary, At) when At > 0 ->
    case binary:at(Binary, At) of
        Continuation when Continuation band 2#11000000 =:= 2#10000000 -> cut_before(Binary, At - 1);
        _ -> binary:part(Binary, 0, At)
    end;
cut_before(_, _) -> <<>>.
