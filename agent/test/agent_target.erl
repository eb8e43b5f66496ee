%% @doc What the tests make a target node do. Compiled for OTP 23 and for 25 to 29.
-module(agent_target).
-export([giving/2, given/1, init/1, supervised/1, start_child/1, child/1, respawned/1,
         contended/4, contend/3, idle/1, broker/0, mnesia/0, traces/1, tracers/1, programs/1, unsent/1, busy/1, collecting/1, large/1, large_child/1, binaries/1, fragmented/4, pools/0, modules/2, sharing/3, garbage/2, collected/1, depth/0, hanging/0, hang/2, hung_until/1, flood/1, named/1, labelled/1, short_lived/1, toiling/0, tables/1, unnamed_tables/1, churn_tables/1, sessions/0, add_sessions/4, keeping/0, receiving/2, churn_processes/1,
         population/1, connecting/2, holding/1, holding_for_another/1, held/1, waited_for/1, services/1, listers/1, sending/2, senders/3, sink/0, stop/1, state/1, watch_long_schedules/1, long_schedules/1]).

%% How many processes of the agent's are making a list just now, and when that was looked at: those that a collector has beside
%% its reader, and that have one of their own.
listers(Agent) ->
    process_flag(priority, max),
    Links = fun(Pid) -> case process_info(Pid, links) of {links, L} -> L; undefined -> [] end end,
    Making = [Lister || Collector <- Links(Agent), Lister <- Links(Collector), Lister =/= Agent, length(Links(Lister)) > 1],
    {length(Making), erlang:monotonic_time(nanosecond)}.

%% A supervisor, `its_supervisor', of one child, `its_child', that ends again and again in such a way; linked to the one that is returned.
supervised(How) ->
    keep(fun() -> register(its_callee, self()), {ok, _} = supervisor:start_link({local, its_supervisor}, ?MODULE, How) end).

%% One that fails, and a sibling that is ended and started again each time.
init(line) ->
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
        in_order -> exit({shutdown, <<"card 4111">>});
        error -> fails(<<"card 4111">>)
    end.

fails(Secret) -> error({badmatch, Secret}).

%% A process, `its_child', that ends with such a reason again and again, without a supervisor.
respawned(Reason) ->
    spawn(fun() -> respawn(fun() -> register(its_child, self()), receive after 200 -> exit(Reason) end end) end).

respawn(Fun) ->
    {_, Monitor} = spawn_monitor(Fun),
    receive {'DOWN', Monitor, process, _, _} -> respawn(Fun) end.

%% A process of this name that connects to that node again and again.
connecting(Name, Node) ->
    keep(fun() -> spawn_link(fun() -> register(Name, self()), connect(Node) end) end).

connect(Node) ->
    net_kernel:connect_node(Node),
    connect(Node).

%% A gen_server-like process that never answers, with a connection to each of two services, and so many that have called it; linked to
%% the one that is returned, which tells its pid, and the addresses of the services.
holding(Callers) ->
    keep(fun() ->
             Services = [Service || {Options, Ip} <- [{[{ip, {127, 0, 0, 1}}], "127.0.0.1"}, {[inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}], "[0:0:0:0:0:0:0:1]"}],
                                    {ok, Listen} <- [gen_tcp:listen(0, Options)], Service <- [service(Listen, Ip)]],
             Holder = spawn_link(fun() ->
                                     [{ok, _} = gen_tcp:connect(Address, Port, [Family]) || {Family, Address, Port, _} <- Services],
                                     hold()
                                 end),
             put(holder, Holder),
             put(services, [Told || {_, _, _, Told} <- Services]),
             [spawn_link(fun() -> took = gen_server:call(Holder, take, infinity) end) || _ <- lists:seq(1, Callers)]
         end).

service(Listen, Ip) ->
    {ok, {Address, Port}} = inet:sockname(Listen),
    Family = case tuple_size(Address) of 4 -> inet; 8 -> inet6 end,
    {Family, Address, Port, iolist_to_binary([Ip, $:, integer_to_list(Port)])}.

hold() -> receive {'$gen_call', _, _} -> hold() end.

%% The same, but that one monitors a dozen others, and has called another one that is busy with something else.
holding_for_another(Callers) ->
    keep(fun() ->
             Busy = spawn_link(fun() -> receive never -> ok end end),
             Others = [spawn_link(fun hold/0) || _ <- lists:seq(1, 12)],
             Holder = spawn_link(fun() ->
                                     [monitor(process, Other) || Other <- Others],
                                     gen_server:call(Busy, stop_one, infinity)
                                 end),
             put(holder, Holder),
             put(busy, Busy),
             %% Heads of messages are no monitors.
             [Holder ! {message, N} || N <- lists:seq(1, 1000)],
             [spawn_link(fun() -> took = gen_server:call(Holder, take, infinity) end) || _ <- lists:seq(1, Callers)]
         end).

waited_for(Holding) -> kept(busy, Holding).

held(Holding) -> kept(holder, Holding).

services(Holding) -> kept(services, Holding).

kept(Key, Holding) ->
    {dictionary, Dictionary} = process_info(Holding, dictionary),
    proplists:get_value(Key, Dictionary).

%% So many processes that get messages while they may not run: half of them lists of so many small integers, the others atoms.
sending(Receivers, Length) ->
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

%% Ever new processes that work for some milliseconds, one after the other.
toiling() -> keep(fun() -> spawn_link(fun toil_on/0) end).

toil_on() ->
    {_, Ref} = spawn_monitor(fun() -> toil(lists:seq(1, 1000), 100) end),
    receive {'DOWN', Ref, process, _, _} -> toil_on() end.

toil(_, 0) -> ok;
toil(List, Left) -> toil(lists:reverse([X + 1 || X <- List]), Left - 1).

%% Processes that all send so many bytes to a process of another node, again and again.
senders(Count, Bytes, Sink) ->
    keep(fun() -> [spawn_link(fun() -> send(binary:copy(<<0>>, Bytes), Sink) end) || _ <- lists:seq(1, Count)] end).

send(Binary, Sink) ->
    Sink ! Binary,
    send(Binary, Sink).

%% Takes everything and keeps nothing.
sink() -> spawn(fun Take() -> receive _ -> Take() end end).

%% Processes that end at once, one after the other.
short_lived(0) -> ok;
short_lived(Count) ->
    {Pid, Monitor} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Monitor, process, Pid, _} -> short_lived(Count - 1) end.

%% Processes that do nothing; linked to the one that is returned.
%% Programs that end with their ports, each behind one.
%% Sockets whose process was killed while its peer, which reads nothing, had not taken all: 1 MB and more wait in each. The peers and
%% the listening socket belong to who is kept.
unsent(Count) ->
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

programs(Count) ->
    Cat = os:find_executable("cat"),
    keep(fun() -> [open_port({spawn_executable, Cat}, [stream]) || _ <- lists:seq(1, Count)] end).

%% Traces of the processes linked to Busy, and of all new ones, to one tracer; since OTP 27 of the same in a session, to another one.
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

tracers(Tracing) -> kept(tracers, Tracing).

%% What of Mnesia's tables is read.
mnesia() ->
    keep(fun() ->
             [ets:new(T, [named_table, public]) || T <- [mnesia_stats, mnesia_gvar]],
             ets:insert(mnesia_stats, [{trans_commits, 1}, {trans_restarts, 2}, {trans_failures, 3}, {trans_log_writes, 2000},
                                       {trans_log_writes_left, 60}, {trans_log_writes_prev, 1000}]),
             ets:insert(mnesia_gvar, [{dump_log_write_threshold, 100}, {{current, db_nodes}, [node()]},
                                      {{schema, disc_copies}, [node(), 'other@nowhere']}, {{schema, ram_copies}, []}])
         end).

%% The tables of a RabbitMQ with two queues, a consumer that requeues, and a client that has just come.
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
             %% Large enough to be among the top ones.
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

%% RabbitMQ's counters, which stay as they are.
make_counters(Counters) ->
    Function = {function, 1, overview, 0, [{clause, 1, [], [], [erl_parse:abstract(Counters)]}]},
    {ok, Name, Beam} = compile:forms([{attribute, 1, module, rabbit_global_counters}, {attribute, 1, export, [{overview, 0}]}, Function], [binary]),
    {module, Name} = code:load_binary(Name, "made", Beam).

%% So many processes that are started with a list, and wait.
giving(Count, Elements) ->
    keep(fun() ->
             List = lists:seq(1, Elements),
             [spawn_link(?MODULE, given, [List]) || _ <- lists:seq(1, Count)]
         end).

given(List) -> receive never -> List end.

idle(Count) -> keep(fun() -> [spawn_link(fun forever/0) || _ <- lists:seq(1, Count)] end).

%% A named table of the process that is returned, and so many processes that have each counted something in it so often.
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

%% Processes that spin.
busy(Count) -> keep(fun() -> [spawn_link(fun spin/0) || _ <- lists:seq(1, Count)] end).

%% So many processes with something on their heaps, and one that collects them all the time; linked to the one that is returned.
collecting(Count) ->
    keep(fun() ->
             Pids = [spawn_link(fun() -> put(data, lists:seq(1, 1000)), forever() end) || _ <- lists:seq(1, Count)],
             put(holder, spawn_link(fun() -> collect_all(Pids) end))
         end).

collect_all(Pids) ->
    [true = erlang:garbage_collect(Pid) || Pid <- Pids],
    collect_all(Pids).

%% A process with so many list elements of data.
large(Elements) -> keep(fun() -> put(data, lists:seq(1, Elements)) end).

%% The same, started as OTP's own behaviours are, by a process that has no name either. Both end with the first one.
large_child(Elements) ->
    Self = self(),
    Maker = proc_lib:spawn(fun() ->
                               Child = proc_lib:spawn_link(fun() -> put(data, lists:seq(1, Elements)), Self ! {self(), large}, loop() end),
                               Self ! {self(), Child},
                               loop()
                           end),
    receive {Maker, Child} -> receive {Child, large} -> {Maker, Child} end end.

%% A process that refers to so many bytes of binary.
binaries(Bytes) -> keep(fun() -> put(data, binary:copy(<<0>>, Bytes)) end).

%% Processes that each have had so many binaries of about that many bytes, and keep all but a share of them (percent).
fragmented(Processes, Each, Bytes, Share) ->
    keep(fun() ->
             Self = self(),
             Make = fun() ->
                        %% No pattern: what one process makes at a stretch lies side by side.
                        All = [binary:copy(<<0>>, Bytes div 2 + erlang:phash2({self(), N}, Bytes)) || N <- lists:seq(1, Each)],
                        put(data, [B || {B, N} <- lists:zip(All, lists:seq(1, Each)), erlang:phash2({N, self()}, 100) >= Share])
                    end,
             Pids = [spawn_link(fun() -> Make(), erlang:garbage_collect(), Self ! {kept, self()}, forever() end)
                     || _ <- lists:seq(1, Processes)],
             [receive {kept, P} -> ok end || P <- Pids]
         end).

%% What the VM counts in the pools: [{{Allocator, Instance}, carriers, bytes}].
pools() ->
    [{{atom_to_binary(A, utf8), I}, element(2, lists:keyfind(carriers, 1, Pool)), element(2, lists:keyfind(carriers_size, 1, Pool))}
     || A <- erlang:system_info(alloc_util_allocators), Instances <- [erlang:system_info({allocator, A})], is_list(Instances),
        {instance, I, Data} <- Instances, {mbcs_pool, Pool} <- Data].

%% Loads so many modules of about that many bytes each, which belong to no application; two of them with strange names, and one twice, so
%% that there is old code of it.
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

%% Processes with next to no heap that refer to the same so many binaries, and each to as many of its own: {pid, those pids}.
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

%% Processes that have all had a list of so many elements, and do nothing since: {pid, those pids}.
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

%% How many of some processes have less than 1000 words of heap.
collected(Pids) ->
    length([P || P <- Pids, {total_heap_size, Words} <- [process_info(P, total_heap_size)], Words < 1000]).

%% How deep hang/1 has to go for at least two seconds on this machine: the shortest of some measurements, because one that
%% something came between would make it too short by that; and so short ones that on a busy machine nothing comes between some.
depth() ->
    Term = lists:foldl(fun(_, T) -> [T | T] end, [], lists:seq(1, 15)),
    Us = lists:min([element(1, timer:tc(erts_debug, flat_size, [Term])) || _ <- lists:seq(1, 100)]),
    15 + ceil(math:log2(2000000 / max(1, Us))).

%% A process that, when told by hang/2, is inside one call for about as long as 2^Depth steps take: the size of a term that
%% shares all its parts is found without ever letting another process run.
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

%% When it could run again, in nanoseconds of its VM.
hung_until(Pid) -> kept(hung_until, Pid).

%% A process with so many messages, and as many dictionary entries, that nobody should read them.
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

%% Large enough to be among the top ones.
named(Name) -> keep(fun() -> register(Name, self()), put(data, lists:seq(1, 50000)) end).

labelled(Label) ->
    keep(fun() -> (binary_to_atom(<<"proc_lib">>, utf8)):set_label(Label), put(data, lists:seq(1, 50000)) end).

%% Named tables, with all options that there are.
tables(Names) ->
    keep(fun() ->
             [begin
                  ets:new(Name, [named_table, public, {read_concurrency, true}, {write_concurrency, true}]),
                  ets:insert(Name, [{N, N} || N <- lists:seq(1, 1000)])
              end || Name <- Names]
         end).

unnamed_tables(Count) ->
    keep(fun() -> [ets:insert(ets:new(table, [public]), [{N, N} || N <- lists:seq(1, 20)]) || _ <- lists:seq(1, Count)] end).

%% Tables with rows of processes, in their key, within it and in another element, or in none; one by time, one that nobody else may read,
%% one that is compressed, and one with all rows under one key.
sessions() ->
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

%% Rows from a number on, of so many processes that live as long as the tables, and of so many that have ended.
add_sessions(Keeper, From, Living, Ended) ->
    Self = self(),
    Alive = [spawn(fun() -> link(Keeper), Self ! linked, forever() end) || _ <- lists:seq(1, Living)],
    [receive linked -> ok end || _ <- Alive],
    Gone = [element(1, spawn_monitor(fun() -> ok end)) || _ <- lists:seq(1, Ended)],
    [receive {'DOWN', _, process, Pid, _} -> ok end || Pid <- Gone],
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
     end || {N, Pid} <- lists:zip(lists:seq(From, From + Living + Ended - 1), Alive ++ Gone)],
    ok.

%% Tables that hold binaries, each in another way.
keeping() ->
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

%% Connections in passive mode with such receive buffers, of processes that wait for data.
receiving(Count, Bytes) ->
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

%% Makes and deletes tables as fast as it can.
churn_tables(Count) -> keep(fun() -> [spawn_link(fun table_churn/0) || _ <- lists:seq(1, Count)] end).

table_churn() ->
    Tables = [ets:new(churn, []) || _ <- lists:seq(1, 20)],
    [ets:insert(T, {1, 2}) || T <- Tables],
    [ets:delete(T) || T <- Tables],
    table_churn().

%% Starts and ends processes as fast as it can.
churn_processes(Count) -> keep(fun() -> [spawn_link(fun process_churn/0) || _ <- lists:seq(1, Count)] end).

process_churn() ->
    Pids = [spawn_link(fun forever/0) || _ <- lists:seq(1, 50)],
    [begin unlink(P), exit(P, kill) end || P <- Pids],
    process_churn().

%% So many processes that do nothing but what they are told.
population(Count) ->
    spawn(fun() -> population_loop([spawn(fun worker/0) || _ <- lists:seq(1, Count)]) end).

ask(Pid, Question) ->
    Pid ! {self(), Question},
    receive {Pid, Answer} -> Answer end.

population_loop(Pids) ->
    receive
        %% Ends some of them, wherever they stand, and starts others: {started, ended}.
        {From, {turnover, End, Start}} ->
            Mixed = [P || {_, P} <- lists:sort([{rand:uniform(), P} || P <- Pids])],
            {Ended, Kept} = lists:split(min(End, length(Mixed)), Mixed),
            lists:foreach(fun stop/1, Ended),
            New = [spawn(fun worker/0) || _ <- lists:seq(1, Start)],
            %% Until it has run for the first time nobody can tell what it runs.
            lists:foreach(fun settled/1, New),
            From ! {self(), {length(New), length(Ended)}},
            population_loop(New ++ Kept);
        %% Makes 40 of them work, and waits until they are idle again: the reductions of all by pid.
        {From, work} ->
            Mixed = [P || {_, P} <- lists:sort([{rand:uniform(), P} || P <- Pids])],
            [ask(P, {work, 2000 + rand:uniform(2000)}) || P <- lists:sublist(Mixed, 40)],
            From ! {self(), [{list_to_binary(pid_to_list(P)), settled(P)} || P <- Pids]},
            population_loop(Pids)
    end.

worker() ->
    receive {From, {work, N}} -> From ! {self(), lists:sum(lists:seq(1, N))} end,
    worker().

%% Its reductions, once it waits again.
settled(Pid) ->
    case process_info(Pid, [status, reductions]) of
        [{status, waiting}, {reductions, Reductions}] -> Reductions;
        _ -> erlang:yield(), settled(Pid)
    end.

stop(Pid) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, _, _, _} -> ok end.

%% What the agent may have left behind: {accounting on, module there, old code, name, wall time on, processes, atoms}.
state(Name) ->
    #{msacc => is_accounting(),
      scheduler_wall_time => erlang:statistics(scheduler_wall_time) =/= undefined,
      module => erlang:module_loaded(Name), old_code => erlang:check_old_code(Name),
      code_server => lists:keymember(Name, 1, code:all_loaded()),
      registered => whereis(Name) =/= undefined,
      system_monitor => erlang:system_monitor(), trace_sessions => trace_sessions()}.

%% Before OTP 27 there is one for all.
trace_sessions() ->
    case catch (binary_to_atom(<<"trace">>, utf8)):session_info(all) of
        [_ | _] = Sessions -> length(Sessions);
        _ -> 1
    end.

%% There is no asking; but counters that stand still are off.
is_accounting() ->
    Read = fun() -> lists:sum([lists:sum(maps:values(C)) || #{counters := C} <- erlang:statistics(microstate_accounting)]) end,
    Before = Read(),
    receive after 5 -> Read() =/= Before end.

%% Notes every time a process of the node was scheduled for so long.
watch_long_schedules(Ms) ->
    keep(fun() -> erlang:system_monitor(self(), [{long_schedule, Ms}]), put(seen, []) end).

long_schedules(Pid) ->
    Pid ! {report, self()},
    receive {Pid, Seen} -> Seen end.

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
