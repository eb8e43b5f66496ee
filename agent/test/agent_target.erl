%% @doc Workloads that the tests start on a target node. Compiled for OTP 23 and for 25 to 29.
%%
%% Most functions spawn a process that owns or is linked to everything else (see keep/1), and return it; stop/1 ends all of it.
-module(agent_target).
-export([spawn_with_list/2, wait_with_list/1, init/1, supervised/1, start_child/1, child/1, crash_loop/1, contended/4, contend/3, idle/1,
         broker/0, mnesia/0, traces/1, tracers/1, programs/1, unsent_data/1, busy/1, garbage_collector/1, large/1, large_child/1,
         binaries/1, fragmented/4, pools/0, modules/2, sharing/3, garbage/2, count_collected/1, depth/0, hanging/0, hang/2,
         hung_until/1, flood/1, named/1, labelled/1, short_lived/1, short_jobs/0, tables/1, unnamed_tables/1, churn_tables/1,
         growing_tables/0, add_rows/4, binary_tables/0, passive_sockets/2, churn_processes/1, population/1, connector/2,
         unresponsive_server/1, server_that_calls/1, kept_server/1, kept_callee/1, service_addresses/1, list_builders/1,
         suspended_receivers/2, remote_senders/3, sink/0, stop/1, state/1, watch_long_schedules/1, long_schedules/1]).

%% Returns {number of the agent's processes that are building a list, time of this reading}. These are the processes that are
%% linked to a collector and to another process, except for the collector's reader.
list_builders(Agent) ->
    process_flag(priority, max),
    Links = fun(Pid) -> case process_info(Pid, links) of {links, L} -> L; undefined -> [] end end,
    Building = [Builder || Collector <- Links(Agent), Builder <- Links(Collector), Builder =/= Agent, length(Links(Builder)) > 1],
    {length(Building), erlang:monotonic_time(nanosecond)}.

%% A supervisor, `its_supervisor', with a child, `its_child', that repeatedly exits in this way.
supervised(How) ->
    keep(fun() -> register(its_callee, self()), {ok, _} = supervisor:start_link({local, its_supervisor}, ?MODULE, How) end).

%% A child that fails, and a sibling that is terminated and restarted each time.
init(siblings) ->
    {ok, {{rest_for_one, 1000, 1}, [{Child, {?MODULE, start_child, [Child]}, permanent, 1000, worker, [?MODULE]} || Child <- [error, sibling]]}};
init(How) ->
    {ok, {{one_for_one, 1000, 1}, [{child, {?MODULE, start_child, [How]}, permanent, 1000, worker, [?MODULE]}]}}.

start_child(How) -> {ok, proc_lib:spawn_link(?MODULE, child, [How])}.

child(sibling) ->
    register(its_sibling, self()),
    receive after infinity -> ok end;
child(How) ->
    register(its_child, self()),
    How =:= heap andalso process_flag(max_heap_size, #{size => 100000, kill => true, error_logger => false}),
    receive after 200 -> ok end,
    case How of
        heap -> lists:seq(1, 1000000);
        call -> gen_server:call(its_callee, never, 1);
        shutdown -> exit({shutdown, <<"card 4111">>});
        error -> fails(<<"card 4111">>)
    end.

fails(Secret) -> error({badmatch, Secret}).

%% A process, `its_child', without a supervisor, that repeatedly exits with this reason.
crash_loop(Reason) ->
    spawn(fun() -> respawn(fun() -> register(its_child, self()), receive after 200 -> exit(Reason) end end) end).

respawn(Fun) ->
    {_, Monitor} = spawn_monitor(Fun),
    receive {'DOWN', Monitor, process, _, _} -> respawn(Fun) end.

%% A process with this name that repeatedly connects to a node.
connector(Name, Node) ->
    keep(fun() -> spawn_link(fun() -> register(Name, self()), connect(Node) end) end).

connect(Node) ->
    net_kernel:connect_node(Node),
    connect(Node).

%% A process that never answers gen_server calls, with a connection to each of two services, and processes that have called it. See
%% kept_server/1 and service_addresses/1.
unresponsive_server(Callers) ->
    keep(fun() ->
             Services = [Service || {Options, Ip} <- [{[{ip, {127, 0, 0, 1}}], "127.0.0.1"}, {[inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}], "[0:0:0:0:0:0:0:1]"}],
                                    {ok, Listen} <- [gen_tcp:listen(0, Options)], Service <- [service(Listen, Ip)]],
             Server = spawn_link(fun() ->
                                     [{ok, _} = gen_tcp:connect(Address, Port, [Family]) || {Family, Address, Port, _} <- Services],
                                     ignore_calls()
                                 end),
             put(server, Server),
             put(service_addresses, [Text || {_, _, _, Text} <- Services]),
             [spawn_link(fun() -> took = gen_server:call(Server, take, infinity) end) || _ <- lists:seq(1, Callers)]
         end).

service(Listen, Ip) ->
    {ok, {Address, Port}} = inet:sockname(Listen),
    Family = case tuple_size(Address) of 4 -> inet; 8 -> inet6 end,
    {Family, Address, Port, iolist_to_binary([Ip, $:, integer_to_list(Port)])}.

ignore_calls() -> receive {'$gen_call', _, _} -> ignore_calls() end.

%% The same, but the server monitors a dozen processes, and waits in a call to another server that never answers.
server_that_calls(Callers) ->
    keep(fun() ->
             Callee = spawn_link(fun() -> receive never -> ok end end),
             Others = [spawn_link(fun ignore_calls/0) || _ <- lists:seq(1, 12)],
             Server = spawn_link(fun() ->
                                     [monitor(process, Other) || Other <- Others],
                                     gen_server:call(Callee, stop_one, infinity)
                                 end),
             put(server, Server),
             put(callee, Callee),
             %% Many message structures, which the agent must not mistake for monitors.
             [Server ! {message, N} || N <- lists:seq(1, 1000)],
             [spawn_link(fun() -> took = gen_server:call(Server, take, infinity) end) || _ <- lists:seq(1, Callers)]
         end).

kept_callee(Keeper) -> dictionary_value(callee, Keeper).

kept_server(Keeper) -> dictionary_value(server, Keeper).

service_addresses(Keeper) -> dictionary_value(service_addresses, Keeper).

dictionary_value(Key, Pid) ->
    {dictionary, Dictionary} = process_info(Pid, dictionary),
    proplists:get_value(Key, Dictionary).

%% Processes that receive messages while they are suspended: half of them lists of this many small integers, the others atoms.
suspended_receivers(Receivers, Length) ->
    keep(fun() ->
             All = [spawn_link(fun take_all/0) || _ <- lists:seq(1, Receivers)],
             List = lists:seq(1, Length),
             spawn_link(fun() -> send_in_turn(lists:split(Receivers div 2, All), List) end)
         end).

send_in_turn({Large, Small} = Receivers, List) ->
    [erlang:suspend_process(Pid) || Pid <- Large ++ Small],
    [begin
         [Pid ! List || Pid <- Large],
         [Pid ! small || Pid <- Small],
         receive after 1 -> ok end
     end || _ <- lists:seq(1, 20)],
    [erlang:resume_process(Pid) || Pid <- Large ++ Small],
    receive after 10 -> send_in_turn(Receivers, List) end.

take_all() -> receive _ -> take_all() end.

%% Starts one process after another, each of which works for some milliseconds.
short_jobs() -> keep(fun() -> spawn_link(fun run_jobs/0) end).

run_jobs() ->
    {_, Ref} = spawn_monitor(fun() -> short_job(lists:seq(1, 1000), 100) end),
    receive {'DOWN', Ref, process, _, _} -> run_jobs() end.

short_job(_, 0) -> ok;
short_job(List, Left) -> short_job(lists:reverse([X + 1 || X <- List]), Left - 1).

%% Processes that repeatedly send this many bytes to a process on another node.
remote_senders(Count, Bytes, Sink) ->
    keep(fun() -> [spawn_link(fun() -> send(binary:copy(<<0>>, Bytes), Sink) end) || _ <- lists:seq(1, Count)] end).

send(Binary, Sink) ->
    Sink ! Binary,
    send(Binary, Sink).

%% A process that discards all messages.
sink() -> spawn(fun Take() -> receive _ -> Take() end end).

%% Starts one process after another, each of which exits immediately.
short_lived(0) -> ok;
short_lived(Count) ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, process, Pid, _} -> short_lived(Count - 1) end.

%% Sockets whose owner was killed before its peer had read everything: each has 1 MB or more of unsent data. The kept process owns the
%% peers and the listening socket.
unsent_data(Count) ->
    keep(fun() ->
             {ok, Listening} = gen_tcp:listen(0, [binary, {active, false}, {backlog, Count}]),
             {ok, Number} = inet:port(Listening),
             lists:foreach(fun(_) -> unsent_to(Listening, Number) end, lists:seq(1, Count))
         end).

unsent_to(Listening, Number) ->
    {ok, _} = gen_tcp:connect({127, 0, 0, 1}, Number, [binary, {active, false}]),
    Self = self(),
    {Sender, Ref} = spawn_monitor(fun() ->
                        {ok, Socket} = gen_tcp:accept(Listening),
                        gen_tcp:send(Socket, binary:copy(<<0>>, 12000000)),
                        Self ! {sent, self()},
                        loop()
                    end),
    receive {sent, Sender} -> exit(Sender, kill) end,
    receive {'DOWN', Ref, _, _, _} -> ok end.

%% External programs, each with a port; they end with the ports.
programs(Count) ->
    Cat = os:find_executable("cat"),
    keep(fun() -> [open_port({spawn_executable, Cat}, [stream]) || _ <- lists:seq(1, Count)] end).

%% Traces the processes linked to Busy, and all new ones, to one tracer; since OTP 27, the former in another session to a second tracer.
traces(Busy) ->
    {links, Pids} = process_info(Busy, links),
    keep(fun() ->
             Sink = fun Sink() -> receive _ -> Sink() end end,
             Tracer = spawn_link(Sink),
             [erlang:trace(P, true, [garbage_collection, {tracer, Tracer}]) || P <- [new_processes | Pids]],
             Others = case list_to_integer(erlang:system_info(otp_release)) >= 27 of
                          true ->
                              Other = spawn_link(Sink),
                              Session = apply(trace, session_create, [agent_test, Other, []]),
                              [apply(trace, process, [Session, P, true, [garbage_collection]]) || P <- Pids],
                              put(session, Session),
                              [Other];
                          false -> []
                      end,
             put(tracers, [Tracer | Others])
         end).

tracers(Keeper) -> dictionary_value(tracers, Keeper).

%% The parts of Mnesia's tables that the agent reads.
mnesia() ->
    keep(fun() ->
             [ets:new(T, [named_table, public]) || T <- [mnesia_stats, mnesia_gvar]],
             ets:insert(mnesia_stats, [{trans_commits, 1}, {trans_restarts, 2}, {trans_failures, 3}, {trans_log_writes, 2000},
                                       {trans_log_writes_left, 60}, {trans_log_writes_prev, 1000}]),
             ets:insert(mnesia_gvar, [{dump_log_write_threshold, 100}, {{current, db_nodes}, [node()]},
                                      {{schema, disc_copies}, [node(), 'other@nowhere']}, {{schema, ram_copies}, []}])
         end).

%% RabbitMQ's tables, with two queues, a consumer that requeues messages, and a client that has just connected.
broker() ->
    make_counters(#{[{protocol, amqp091}] => #{messages_received_total => 20},
                    [{protocol, amqp091}, {queue_type, rabbit_classic_queue}] => #{messages_delivered_total => 1000},
                    [{queue_type, rabbit_classic_queue}, {dead_letter_strategy, disabled}] =>
                        #{messages_dead_lettered_expired_total => 500, messages_dead_lettered_maxlen_total => 500},
                    [{queue_type, rabbit_classic_queue}, {dead_letter_strategy, at_most_once}] =>
                        #{messages_dead_lettered_expired_total => 3, messages_dead_lettered_rejected_total => 4, messages_dead_lettered_maxlen_total => 5},
                    [{queue_type, rabbit_quorum_queue}, {dead_letter_strategy, at_least_once}] =>
                        #{messages_dead_lettered_expired_total => 30, messages_dead_lettered_rejected_total => 40}}),
    keep(fun() ->
             [ets:new(T, [named_table, public, {keypos, case T of rabbit_queue -> 2; _ -> 1 end}])
              || T <- [connection_churn_metrics, connection_created, connection_metrics, channel_created, channel_metrics, consumer_created,
                       channel_queue_metrics, queue_coarse_metrics, rabbit_queue, auth_attempt_metrics, node_metrics, node_coarse_metrics]],
             %% Large enough to be among the top processes.
             Named = fun() -> put(process_name, {rabbit_amqqueue_process, {resource, <<"/">>, queue, <<"orders">>}}), forever() end,
             Reader = proc_lib:spawn_opt(Named, [link, {min_heap_size, 50000}]),
             Large = spawn_opt(fun() -> forever() end, [link, {min_heap_size, 100000}]),
             ets:insert(rabbit_queue, {amqqueue, {resource, <<"v">>, queue, <<"mail">>}, true, false, none,
                                        [{<<"x-message-ttl">>, long, 30000}, {<<"x-queue-type">>, longstr, <<"classic">>}], Large, [], [], undefined,
                                        [{name, <<"limits">>}, {definition, [{<<"max-length">>, 1000}, {<<"message-ttl">>, 60000}]}],
                                        undefined}),
             Queue = fun(Name) -> {resource, <<"/">>, queue, Name} end,
             Channel = self(),
             ets:insert(connection_churn_metrics, {node(), 5, 4, 9, 7, 3, 2, 1}),
             ets:insert(connection_created, {Reader, [{name, <<"10.0.0.7:41000 -> 10.0.0.1:5672">>}, {user, <<"app">>},
                                                      {user_provided_name, <<"worker">>}]}),
             ets:insert(connection_metrics, {Reader, [{state, blocked}, {channels, 2}]}),
             ets:insert(channel_created, {Channel, [{name, <<"10.0.0.7:41000 -> 10.0.0.1:5672 (1)">>}, {connection, Reader}, {user, <<"app">>}]}),
             ets:insert(channel_metrics, {Channel, [{messages_unacknowledged, 30}]}),
             ets:insert(consumer_created, {{Queue(<<"orders">>), Channel, <<"tag">>}, false, true, 30, true, up, []}),
             ets:insert(channel_queue_metrics, {{Channel, Queue(<<"orders">>)}, 0, 0, 1000, 0, 900, 50, 0, 0}),
             ets:insert(queue_coarse_metrics, [{Queue(<<"orders">>), 7, 30, 37, 12345}, {{resource, <<"v">>, queue, <<"mail">>}, 2, 0, 2, 1}]),
             ets:insert(auth_attempt_metrics, {amqp091, 8, 5, 3}),
             ets:insert(node_metrics, {node(), [{mem_limit, 1000}, {mem_alarm, false}, {disk_free_alarm, true}, {disk_free_limit, 50}]}),
             ets:insert(node_coarse_metrics, {node(), [{disk_free, 40}]})
         end).

%% Loads a module rabbit_global_counters with constant counters.
make_counters(Counters) ->
    Function = {function, 1, overview, 0, [{clause, 1, [], [], [erl_parse:abstract(Counters)]}]},
    {ok, Name, Beam} = compile:forms([{attribute, 1, module, rabbit_global_counters}, {attribute, 1, export, [{overview, 0}]}, Function], [binary]),
    {module, Name} = code:load_binary(Name, "made", Beam).

%% Waiting processes that were spawned with a list as their argument.
spawn_with_list(Count, Elements) ->
    keep(fun() ->
             List = lists:seq(1, Elements),
             [spawn_link(?MODULE, wait_with_list, [List]) || _ <- lists:seq(1, Count)]
         end).

wait_with_list(List) -> receive never -> List end.

idle(Count) -> keep(fun() -> [spawn_link(fun forever/0) || _ <- lists:seq(1, Count)] end).

%% A named table in which this many processes have each updated a counter this many times.
contended(Name, Options, Processes, Times) ->
    Keeper = keep(fun() -> ets:new(Name, [named_table, public | Options]) end),
    contend(Name, Processes, Times),
    Keeper.

contend(Name, Processes, Times) ->
    Self = self(),
    Count = fun() ->
                [ets:update_counter(Name, N rem 4, 1, {N rem 4, 0}) || N <- lists:seq(1, Times)],
                Self ! {counted, self()}
            end,
    Pids = [spawn_link(Count) || _ <- lists:seq(1, Processes)],
    [receive {counted, P} -> ok end || P <- Pids],
    ok.

%% Processes in a busy loop.
busy(Count) -> keep(fun() -> [spawn_link(fun spin/0) || _ <- lists:seq(1, Count)] end).

%% Processes with data on their heaps, and a process (kept_server/1) that continuously garbage-collects them.
garbage_collector(Count) ->
    keep(fun() ->
             Pids = [spawn_link(fun() -> put(data, lists:seq(1, 1000)), forever() end) || _ <- lists:seq(1, Count)],
             put(server, spawn_link(fun() -> collect_all(Pids) end))
         end).

collect_all(Pids) ->
    [true = erlang:garbage_collect(Pid) || Pid <- Pids],
    collect_all(Pids).

%% A process with a list of this many elements.
large(Elements) -> keep(fun() -> put(data, lists:seq(1, Elements)) end).

%% Returns {parent, child}: the same, but started by proc_lib, as OTP's behaviours are, from a parent without a name. The child
%% ends with its parent.
large_child(Elements) ->
    Self = self(),
    Maker = proc_lib:spawn(fun() ->
                               Child = proc_lib:spawn_link(fun() -> put(data, lists:seq(1, Elements)), Self ! {self(), large}, loop() end),
                               Self ! {self(), Child},
                               loop()
                           end),
    receive {Maker, Child} -> receive {Child, large} -> {Maker, Child} end end.

%% A process that refers to a binary of this many bytes.
binaries(Bytes) -> keep(fun() -> put(data, binary:copy(<<0>>, Bytes)) end).

%% Processes that have each allocated this many binaries of about that many bytes, and keep all but a share of them (in percent).
fragmented(Processes, Each, Bytes, Share) ->
    keep(fun() ->
             Self = self(),
             Make = fun() ->
                        %% A random choice, since binaries that are allocated together are adjacent in memory.
                        All = [binary:copy(<<0>>, Bytes div 2 + erlang:phash2({self(), N}, Bytes)) || N <- lists:seq(1, Each)],
                        put(data, [B || {B, N} <- lists:zip(All, lists:seq(1, Each)), erlang:phash2({N, self()}, 100) >= Share])
                    end,
             Pids = [spawn_link(fun() -> Make(), erlang:garbage_collect(), Self ! {kept, self()}, forever() end)
                     || _ <- lists:seq(1, Processes)],
             [receive {kept, P} -> ok end || P <- Pids]
         end).

%% Returns the VM's counts of pooled carriers: [{{Allocator, Instance}, carriers, bytes}].
pools() ->
    [{{atom_to_binary(A, utf8), I}, element(2, lists:keyfind(carriers, 1, Pool)), element(2, lists:keyfind(carriers_size, 1, Pool))}
     || A <- erlang:system_info(alloc_util_allocators), Instances <- [erlang:system_info({allocator, A})], is_list(Instances),
        {instance, I, Data} <- Instances, {mbcs_pool, Pool} <- Data].

%% Loads modules that belong to no application, and returns their number: Count, and two more with unusual names. One of them is loaded
%% twice, so that it has old code.
modules(Count, Functions) ->
    Names = [list_to_atom("beamtune_target_" ++ integer_to_list(N)) || N <- lists:seq(1, Count)],
    [make_module(Name, Functions) || Name <- ['a b\'c', 'Elixir.Größe' | Names]],
    make_module(hd(Names), Functions + 1),
    length(Names) + 2.

make_module(Name, Functions) ->
    Function = fun(N) ->
                   F = list_to_atom("f" ++ integer_to_list(N)),
                   {function, 1, F, 1, [{clause, 1, [{var, 1, 'X'}], [], [{op, 1, '+', {var, 1, 'X'}, {integer, 1, N}}]}]}
               end,
    Names = [{list_to_atom("f" ++ integer_to_list(N)), 1} || N <- lists:seq(1, Functions)],
    Forms = [{attribute, 1, module, Name}, {attribute, 1, export, Names} | [Function(N) || N <- lists:seq(1, Functions)]],
    {ok, Name, Beam} = compile:forms(Forms, [binary]),
    {module, Name} = erlang:load_module(Name, Beam).

%% Returns {parent, pids}: processes with very small heaps that share this many binaries, and have as many of their own.
sharing(Processes, Count, Bytes) ->
    Self = self(),
    Pid = spawn(fun() ->
                    Shared = [binary:copy(<<N>>, Bytes) || N <- lists:seq(1, Count)],
                    Hold = fun() -> put(data, {Shared, [binary:copy(<<N>>, Bytes) || N <- lists:seq(1, Count)]}) end,
                    Pids = [spawn_link(fun() -> Hold(), garbage_collect(), Self ! {held, self()}, forever() end)
                            || _ <- lists:seq(1, Processes)],
                    Self ! {self(), Pids},
                    forever()
                end),
    receive {Pid, Pids} -> ok end,
    [receive {held, P} -> ok end || P <- Pids],
    {Pid, Pids}.

%% Returns {parent, pids}: idle processes, each with a list of this many elements as garbage.
garbage(Processes, Elements) ->
    Self = self(),
    Pid = spawn(fun() ->
                    Pids = [spawn_link(fun() ->
                                           put(sum, lists:sum(lists:seq(1, Elements))),
                                           Self ! {made, self()},
                                           forever()
                                       end) || _ <- lists:seq(1, Processes)],
                    Self ! {self(), Pids},
                    forever()
                end),
    receive {Pid, Pids} -> ok end,
    [receive {made, P} -> ok end || P <- Pids],
    {Pid, Pids}.

%% Returns how many of these processes have a heap of less than 1000 words.
count_collected(Pids) ->
    length([P || P <- Pids, {total_heap_size, Words} <- [process_info(P, total_heap_size)], Words < 1000]).

%% Returns the depth with which hang/2 takes at least two seconds on this host. It is calculated from the shortest of several
%% measurements, since measurements that are preempted would make it too small. They are so short that some are not preempted even
%% on a busy host.
depth() ->
    Term = lists:foldl(fun(_, T) -> [T | T] end, [], lists:seq(1, 15)),
    Us = lists:min([element(1, timer:tc(erts_debug, flat_size, [Term])) || _ <- lists:seq(1, 100)]),
    15 + ceil(math:log2(2000000 / max(1, Us))).

%% A process that hangs for about 2^Depth steps in a single call when hang/2 is called: erts_debug:flat_size/1 of a term that
%% shares all its parts never yields.
hanging() ->
    spawn(fun() ->
              receive {From, Depth} -> ok end,
              Term = lists:foldl(fun(_, T) -> [T | T] end, [], lists:seq(1, Depth)),
              From ! {self(), now},
              put(size, erts_debug:flat_size(Term)),
              put(hung_until, erlang:monotonic_time(nanosecond)),
              forever()
          end).

hang(Pid, Depth) ->
    Pid ! {self(), Depth},
    receive {Pid, now} -> ok end.

%% Returns when that call returned, in nanoseconds of the target's monotonic time; `undefined' before.
hung_until(Pid) -> dictionary_value(hung_until, Pid).

%% A process with this many messages, and a tenth of that number of entries in its dictionary.
flood(Count) ->
    Self = self(),
    Pid = proc_lib:spawn(fun() ->
                             [put({key, N}, lists:duplicate(10, N)) || N <- lists:seq(1, Count div 10)],
                             Self ! ready,
                             forever()
                         end),
    receive ready -> ok end,
    [Pid ! {message, N} || N <- lists:seq(1, Count)],
    Pid.

%% Large enough to be among the top processes.
named(Name) -> keep(fun() -> register(Name, self()), put(data, lists:seq(1, 50000)) end).

labelled(Label) ->
    keep(fun() -> (binary_to_atom(<<"proc_lib">>, utf8)):set_label(Label), put(data, lists:seq(1, 50000)) end).

%% Named tables with concurrency options.
tables(Names) ->
    keep(fun() ->
             [begin
                  ets:new(Name, [named_table, public, {read_concurrency, true}, {write_concurrency, true}]),
                  ets:insert(Name, [{N, N} || N <- lists:seq(1, 1000)])
              end || Name <- Names]
         end).

unnamed_tables(Count) ->
    keep(fun() -> [ets:insert(ets:new(table, [public]), [{N, N} || N <- lists:seq(1, 20)]) || _ <- lists:seq(1, Count)] end).

%% Tables for add_rows/4, whose objects have a pid as the key, within the key, in another element, or nowhere; an ordered_set, a bag
%% with all objects under one key, a compressed table, and one with decentralized counters. And a growing private table, `shut'.
growing_tables() ->
    keep(fun() ->
             [ets:new(Name, [named_table, public | Options])
              || {Name, Options} <- [{by_pid, []}, {by_part, [{keypos, 2}]}, {by_value, [{write_concurrency, true}]}, {of_none, []},
                                     {by_time, [ordered_set]}, {by_key, [duplicate_bag]}, {packed, [compressed]}, {spread, [{write_concurrency, true}, {decentralized_counters, true}]}]],
             spawn_link(fun() -> fill(ets:new(shut, [named_table, private]), 1) end)
         end).

fill(Table, N) ->
    ets:insert(Table, {self(), N}),
    ets:insert(Table, {N, self()}),
    receive after 1 -> fill(Table, N + 1) end.

%% Adds objects, numbered from From, for Living processes that live as long as the tables, and for Ended processes that have
%% exited.
add_rows(Keeper, From, Living, Ended) ->
    Self = self(),
    Alive = [spawn(fun() -> link(Keeper), Self ! linked, forever() end) || _ <- lists:seq(1, Living)],
    [receive linked -> ok end || _ <- Alive],
    Dead = [element(1, spawn_monitor(fun() -> ok end)) || _ <- lists:seq(1, Ended)],
    [receive {'DOWN', _, process, Pid, _} -> ok end || Pid <- Dead],
    Large = lists:seq(1, 100),
    [begin
         ets:insert(by_pid, {Pid, Large}),
         ets:insert(by_key, {popular, Pid, Large}),
         ets:insert(by_part, {session, {user, N, Pid}, Large}),
         ets:insert(by_value, {N, Large, Pid, up}),
         ets:insert(of_none, {N, Large, make_ref()}),
         ets:insert(by_time, {{N, Pid}, Large}),
         ets:insert(packed, {Pid, Large}),
         ets:insert(spread, {Pid, Large})
     end || {N, Pid} <- lists:zip(lists:seq(From, From + Living + Ended - 1), Alive ++ Dead)],
    ok.

%% Tables whose objects refer to binaries in different ways.
binary_tables() ->
    keep(fun() ->
             Large = fun(Bytes) -> binary:copy(<<0>>, Bytes) end,
             Part = fun(Binary) -> binary:part(Binary, 50, 100) end,
             Shared = Large(1000000),
             Rows = [{of_whole, [], 200, fun(N) -> {N, Large(200000)} end},
                     {of_parts, [], 300, fun(N) -> {{user, N}, Part(Large(10000)), now} end},
                     {of_shared, [], 1000, fun(N) -> {N, Part(Shared)} end},
                     {of_nested, [ordered_set], 100, fun(N) -> {N, {image, N, up, now, 1, Large(5000)}} end},
                     {of_maps, [], 100, fun(N) -> {N, #{value => Large(5000)}} end},
                     {of_lists, [], 100, fun(N) -> {N, {N, [Large(5000)]}} end},
                     {of_small, [], 100, fun(N) -> {integer_to_binary(N), N, []} end},
                     {of_bag, [bag], 100, fun(N) -> {N, Large(5000)} end},
                     {of_packed, [compressed], 100, fun(N) -> {N, Large(5000)} end},
                     {of_private, [private], 100, fun(N) -> {N, Large(5000)} end}],
             [begin
                  ets:new(Table, [named_table, public | Options]),
                  [ets:insert(Table, Row(N)) || N <- lists:seq(1, Count)]
              end || {Table, Options, Count, Row} <- Rows]
         end).

%% Sockets in passive mode with receive buffers of this size, whose owners wait for data.
passive_sockets(Count, Bytes) ->
    keep(fun() ->
             {ok, Listening} = gen_tcp:listen(0, [binary, {active, false}, {buffer, Bytes}, {backlog, Count}]),
             {ok, Number} = inet:port(Listening),
             Self = self(),
             [begin
                  {ok, _} = gen_tcp:connect({127, 0, 0, 1}, Number, [binary, {active, true}]),
                  spawn_link(fun() ->
                                 {ok, Socket} = gen_tcp:accept(Listening),
                                 {error, timeout} = gen_tcp:recv(Socket, 0, 1),
                                 Self ! accepted,
                                 gen_tcp:recv(Socket, 0)
                             end),
                  receive accepted -> ok end
              end || _ <- lists:seq(1, Count)]
         end).

%% Processes that create and delete tables as fast as they can.
churn_tables(Count) -> keep(fun() -> [spawn_link(fun table_churn/0) || _ <- lists:seq(1, Count)] end).

table_churn() ->
    Tables = [ets:new(churn, []) || _ <- lists:seq(1, 20)],
    [ets:insert(T, {1, 2}) || T <- Tables],
    [ets:delete(T) || T <- Tables],
    table_churn().

%% Processes that start and end other processes as fast as they can.
churn_processes(Count) -> keep(fun() -> [spawn_link(fun process_churn/0) || _ <- lists:seq(1, Count)] end).

process_churn() ->
    Pids = [spawn_link(fun forever/0) || _ <- lists:seq(1, 50)],
    [begin unlink(P), exit(P, kill) end || P <- Pids],
    process_churn().

%% Processes that execute nothing except on request.
population(Count) ->
    spawn(fun() -> population_loop([spawn(fun worker/0) || _ <- lists:seq(1, Count)]) end).

ask(Pid, Question) ->
    Pid ! {self(), Question},
    receive {Pid, Answer} -> Answer end.

population_loop(Pids) ->
    receive
        %% Ends some of the processes, chosen at random, and starts others: {started, ended}.
        {From, {turnover, End, Start}} ->
            Mixed = [P || {_, P} <- lists:sort([{rand:uniform(), P} || P <- Pids])],
            {Ended, Kept} = lists:split(min(End, length(Mixed)), Mixed),
            lists:foreach(fun stop/1, Ended),
            New = [spawn(fun worker/0) || _ <- lists:seq(1, Start)],
            %% The current function of a process is unknown until it has run for the first time.
            lists:foreach(fun settled/1, New),
            From ! {self(), {length(New), length(Ended)}},
            population_loop(New ++ Kept);
        %% Makes 40 of the processes work, and waits until they are idle again. Returns [{pid, reductions}] of all processes.
        {From, work} ->
            Mixed = [P || {_, P} <- lists:sort([{rand:uniform(), P} || P <- Pids])],
            [ask(P, {work, 2000 + rand:uniform(2000)}) || P <- lists:sublist(Mixed, 40)],
            From ! {self(), [{list_to_binary(pid_to_list(P)), settled(P)} || P <- Pids]},
            population_loop(Pids)
    end.

worker() ->
    receive {From, {work, N}} -> From ! {self(), lists:sum(lists:seq(1, N))} end,
    worker().

%% Waits until a process is waiting, and returns its reductions.
settled(Pid) ->
    case process_info(Pid, [status, reductions]) of
        [{status, waiting}, {reductions, Reductions}] -> Reductions;
        _ -> erlang:yield(), settled(Pid)
    end.

stop(Pid) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%% Returns everything that the agent might leave behind.
state(Name) ->
    #{msacc => is_accounting(),
      scheduler_wall_time => erlang:statistics(scheduler_wall_time) =/= undefined,
      module => erlang:module_loaded(Name), old_code => erlang:check_old_code(Name),
      code_server => lists:keymember(Name, 1, code:all_loaded()),
      registered => whereis(Name) =/= undefined,
      system_monitor => erlang:system_monitor(), trace_sessions => trace_sessions()}.

%% Before OTP 27, all tools share a single trace session.
trace_sessions() ->
    case catch (binary_to_atom(<<"trace">>, utf8)):session_info(all) of
        [_ | _] = Sessions -> length(Sessions);
        _ -> 1
    end.

%% The VM does not report the flag, but the counters do not change while accounting is off.
is_accounting() ->
    Read = fun() -> lists:sum([lists:sum(maps:values(C)) || #{counters := C} <- erlang:statistics(microstate_accounting)]) end,
    Before = Read(),
    receive after 5 -> Read() =/= Before end.

%% Records all time slices of at least this many milliseconds.
watch_long_schedules(Ms) ->
    keep(fun() -> erlang:system_monitor(self(), [{long_schedule, Ms}]), put(seen, []) end).

long_schedules(Pid) ->
    Pid ! {report, self()},
    receive {Pid, Seen} -> Seen end.

%% Runs Fun in a new process that lives until it is stopped, and returns that process when Fun has returned.
keep(Fun) ->
    Self = self(),
    Ref = make_ref(),
    Pid = spawn(fun() -> Fun(), Self ! Ref, loop() end),
    receive Ref -> Pid end.

loop() ->
    receive
        {monitor, Pid, long_schedule, Info} -> put(seen, [{Pid, Info} | get(seen)]), loop();
        {report, To} -> To ! {self(), get(seen)}, loop();
        collect -> garbage_collect(), loop()
    end.

forever() -> receive stop -> ok end.

spin() -> spin().
