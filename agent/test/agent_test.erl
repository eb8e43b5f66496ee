%% @doc Tests of the agent on a real node of one release. Each test gets a fresh node, which must be as it was, and must
%% have printed nothing, when the test is over. run.sh starts it.
-module(agent_test).
-export([main/1, tests/0, victim/1, start/4, stop/1, call/3, call/4, node_of/1]).
-export([apart/1, check/2, check/3, clean/1, items/1, join/1, join/2, result/1, value/2, wait/2, with_lcnt/2]).
-export([start_lcnt/3]).
-export_type([target/0]).

-record(target, {node, os_pid, release, root, beams, log}).
-type target() :: #target{}.

-define(HOT, [msacc, scheduler_wall_time, run_queues, statistics, memory, counts, check_io, procs, events]).
-define(SLOW, [stands, messages, processes, spawns, ets, ports, dist, allocators]).

%% The state of a node without the agent.
-define(CLEAN, #{msacc => false, scheduler_wall_time => false, module => false, old_code => false, code_server => false,
                 registered => false, system_monitor => undefined, trace_sessions => 1}).

%% Name, what to do, the node's flags.
tests() ->
    [{"every_item_is_answered_in_the_documented_shape", fun every_item/1},
     {"answers_hold_only_binaries_numbers_and_known_atoms", fun only_plain_data/1},
     {"the_fixtures_are_of_this_protocol", fun fixtures/1},
     {"after_leaving_nothing_is_left_and_no_atoms_are_added", fun leaves_nothing/1},
     {"leaving_in_the_middle_of_a_sample_leaves_nothing", fun leaves_while_sampling/1},
     {"killed_clients_leave_nothing_within_two_seconds", fun killed_clients/1},
     {"a_stopped_client_loses_its_lease", fun lease/1},
     {"a_client_that_renews_keeps_its_lease", fun renew/1},
     {"two_clients_share_one_agent_and_the_last_one_ends_it", fun two_clients/1},
     {"two_clients_that_come_at_once_share_one_agent", fun two_at_once/1},
     {"there_are_no_more_processes_than_documented", fun its_processes/1},
     {"a_client_that_comes_while_the_last_one_leaves_gets_an_agent", fun join_while_leaving/1},
     {"clients_above_eight_are_refused", fun too_many/1},
     {"a_killed_agent_is_cleaned_up_and_can_be_injected_again", fun agent_killed/1},
     {"a_killed_collector_costs_one_item", fun collector_killed/1},
     {"a_killed_keeper_leaves_nothing", fun keeper_killed/1},
     {"accounting_is_on_for_a_part_of_the_time", fun msacc_in_windows/1},
     {"accounting_that_was_on_before_stays_on", fun msacc_was_on/1},
     {"accounting_that_somebody_switches_on_stays_on", fun msacc_switched_on/1},
     {"accounting_that_somebody_switches_off_comes_on_again", fun msacc_switched_off/1},
     {"a_hanging_process_is_left_out", fun hanging_process/1},
     {"a_client_that_comes_during_a_long_purge_is_told_to_wait", fun long_purge/1},
     {"with_many_processes_the_module_stays_until_the_node_is_calm", fun calm/1},
     {"an_overloaded_node_gets_no_timeouts", fun overloaded/1},
     {"no_item_waits_for_a_long_list_nor_tells_zero_for_it", fun long_lists/1},
     {"long_lists_are_made_one_after_the_other", fun one_list_at_a_time/1},
     {"a_process_with_a_million_messages_is_not_read", fun flooded/1},
     {"strange_names_and_labels_come_as_bounded_utf8", fun strange_names/1},
     {"tables_may_vanish_during_the_scan", fun vanishing_tables/1},
     {"processes_may_come_and_go_during_the_scan", fun churn/1},
     {"deltas_new_and_gone_are_exact", fun exact/1},
     {"a_small_budget_cuts_rounds_into_parts_that_are_exact_too", fun exact_in_parts/1},
     {"a_hot_process_among_many_is_found_within_three_samples", fun hot_among_many/1},
     {"long_slices_long_collections_and_large_heaps_are_told_with_their_process", fun long_ones/1},
     {"processes_that_wait_for_a_busy_node_are_told", fun busy_node/1},
     {"somebody_elses_system_monitor_stays", fun foreign_monitor/1},
     {"a_system_monitor_that_comes_later_stays", fun later_monitor/1},
     {"a_flood_of_events_is_not_taken", fun flood/1},
     {"files_of_the_host_come_as_the_kernel_gives_them", fun host_files/1},
     {"no_other_files_than_those_named_in_the_agent_are_read", fun refused_files/1},
     {"files_that_are_not_the_kernels_are_not_read", fun foreign_files/1},
     {"a_file_that_hangs_costs_no_other_item", fun hanging_file/1},
     {"with_a_small_budget_threads_are_read_in_turns", fun thinned_threads/1},
     {"new_processes_are_told_with_who_made_them", fun new_processes/1},
     {"those_that_wait_are_told_with_whom_they_wait_for", fun waiting_for/1},
     {"who_others_wait_for_is_not_asked_for_what_may_be_very_many", fun waiting_for_a_hub/1, ["+MFe", "false"]},
     {"of_a_great_many_processes_some_are_looked_at", fun some_of_many/1},
     {"messages_are_weighed_when_they_come", fun weighed_messages/1},
     {"processes_that_end_at_once_are_counted", fun short_lived/1},
     {"a_table_that_is_passed_through_many_times_counts_on", fun small_table/1, ["+P", "1024"]},
     {"the_largest_and_busiest_processes_are_named", fun top_processes/1},
     {"a_wrong_beam_changes_nothing", fun wrong_beam/1, [], prints},
     {"bad_requests_are_refused_and_harm_nothing", fun bad_requests/1},
     {"a_second_sample_meanwhile_is_refused_as_busy", fun busy/1},
     {"secrets_do_not_leave_the_node", fun secrets/1,
      ["-rabbit", "default_pass", "\"S3cr3t\"", "-kernel", "net_ticktime", "30", "my_key", "\"S3cr3t\"", "-user_flag", "S3cr3t",
       "-extra", "--password=S3cr3t"]},
     {"disabled_allocators_are_told", fun disabled_allocators/1, ["+MBe", "false"]}]
        ++ agent_long_test:tests() ++ agent_locks_test:tests().

main([Release, Root, Beams, Word]) ->
    Tests = [T || T <- tests(), string:find(element(1, T), Word) =/= nomatch],
    Failed = lists:sum([run_test(T, Release, Root, Beams) || T <- Tests]),
    io:format("OTP ~s: ~b of ~b tests passed~n", [Release, length(Tests) - Failed, length(Tests)]),
    halt(min(1, Failed)).

run_test({Name, Test}, Release, Root, Beams) -> run_test({Name, Test, []}, Release, Root, Beams);
run_test({Name, Test, Flags}, Release, Root, Beams) -> run_test({Name, Test, Flags, silent}, Release, Root, Beams);
run_test({Name, Test, Flags, Prints}, Release, Root, Beams) ->
    Begin = erlang:monotonic_time(millisecond),
    Target = start(Release, Root, Beams, Flags),
    {Pid, Monitor} = spawn_monitor(fun() ->
                                       Test(Target),
                                       clean(Target),
                                       Prints =:= silent andalso check("nothing printed", <<>>, printed(Target))
                                   end),
    Result = receive
                 {'DOWN', Monitor, process, Pid, normal} -> ok;
                 {'DOWN', Monitor, process, Pid, Reason} -> Reason
             after 120000 -> exit(Pid, kill), timeout
             end,
    Ms = erlang:monotonic_time(millisecond) - Begin,
    Text = printed(Target),
    stop(Target),
    case Result of
        ok -> io:format("ok      OTP ~s ~s (~b ms)~n", [Release, Name, Ms]), 0;
        _ -> io:format("FAILED  OTP ~s ~s~n~tp~n~ts~n", [Release, Name, Result, Text]), 1
    end.

%%% Nodes ---------------------------------------------------------------------------------------------------

start(Release, Root, Beams, Flags) -> start(Release, Root, Beams, Flags, "exec").

%% Exec: how the shell becomes the node.
start(Release, Root, Beams, Flags, Exec) -> start(Release, Root, Beams, Flags, Exec, "erl").

%% Erlang: the program, as the release's root has it.
start(Release, Root, Beams, Flags, Exec, Erlang) ->
    Node = list_to_atom(lists:concat(["target", Release, "_", os:getpid(), "_", erlang:unique_integer([positive]),
                                      "@127.0.0.1"])),
    Erl = [Erlang, "-noinput", "-name", atom_to_list(Node), "-setcookie", atom_to_list(erlang:get_cookie()), "-pa", Beams
           | Flags],
    %% The shell tells its own pid and becomes the node.
    Command = case Root of "/" -> [Exec, "\"$@\""]; _ -> [Exec, "chroot", Root, "\"$@\""] end,
    Args = ["-c", "echo $$; " ++ lists:append(lists:join(" ", Command)), "sh" | Erl],
    Self = self(),
    Log = spawn(fun() ->
                    Port = open_port({spawn_executable, "/bin/sh"}, [{args, Args}, binary, stderr_to_stdout, exit_status]),
                    receive {Port, {data, Line}} -> [Pid, Rest] = binary:split(Line, <<"\n">>) end,
                    Self ! {self(), started, binary_to_list(Pid)},
                    log(Port, Rest)
                end),
    receive {Log, started, OsPid} -> ok after 10000 -> OsPid = exit(node_does_not_start) end,
    wait(fun() -> net_adm:ping(Node) =:= pong andalso element(1, call(Node, init, get_status, [])) =:= started end, 20000),
    #target{node = Node, os_pid = OsPid, release = list_to_integer(Release), root = Root, beams = Beams, log = Log}.

%% A node whose emulator counts locks, of the same release; `none' where nobody has said which erl starts one.
-spec start_lcnt(string(), string(), string()) -> target() | none.
start_lcnt(Release, Root, Beams) ->
    case os:getenv("BEAMTUNE_LCNT_" ++ Release) of
        false -> none;
        Erlang -> start(Release, Root, Beams, [], "exec", Erlang)
    end.

%% Runs a test on such a node, which is to be left as it was, too.
-spec with_lcnt(target(), fun((target()) -> term())) -> ok.
with_lcnt(#target{release = Release, root = Root, beams = Beams}, Test) ->
    case start_lcnt(integer_to_list(Release), Root, Beams) of
        none -> io:format("skipped, because BEAMTUNE_LCNT_~b names no erl whose emulator counts locks~n", [Release]);
        Lcnt ->
            try
                Test(Lcnt),
                clean(Lcnt),
                check("nothing printed", <<>>, printed(Lcnt))
            after stop(Lcnt)
            end
    end.

-spec node_of(target()) -> node().
node_of(#target{node = Node}) -> Node.

%% What the node prints.
log(Port, Text) ->
    receive
        {Port, {data, More}} -> log(Port, <<Text/binary, More/binary>>);
        {Port, {exit_status, _}} -> log(Port, Text);
        {From, printed} -> From ! {self(), Text}, log(Port, Text);
        stop -> ok
    end.

printed(#target{log = Log}) ->
    Log ! {self(), printed},
    receive {Log, Text} -> Text after 5000 -> <<"(its output is lost)">> end.

stop(#target{os_pid = OsPid, node = Node, log = Log}) ->
    os:cmd("kill -9 " ++ OsPid),
    wait(fun() -> not lists:member(Node, nodes(connected)) end, 5000),
    Log ! stop.

call(#target{node = Node}, Function, Args) -> call(Node, agent_target, Function, Args).

call(#target{node = Node}, Module, Function, Args) -> erpc:call(Node, Module, Function, Args);
call(Node, Module, Function, Args) -> erpc:call(Node, Module, Function, Args).

%% Waits for a condition.
wait(Condition, Ms) -> wait(Condition, Ms, erlang:monotonic_time(millisecond)).

wait(Condition, Ms, Begin) ->
    case Condition() of
        true -> erlang:monotonic_time(millisecond) - Begin;
        false ->
            erlang:monotonic_time(millisecond) - Begin > Ms andalso
                exit({waited_in_vain, Ms, process_info(self(), current_stacktrace)}),
            receive after 10 -> wait(Condition, Ms, Begin) end
    end.

check(What, Value, Holds) when is_function(Holds) -> check({What, Value}, Holds(Value));
check(_, Same, Same) -> ok;
check(What, Expected, Found) -> exit({What, {expected, Expected}, {found, Found}}).

check(_, true) -> ok;
check(What, Found) -> exit({What, Found}).

%% The node is as it was before; it has two seconds for that.
clean(Target) -> clean(Target, ?CLEAN).

clean(Target, Expected) ->
    State = fun() -> call(Target, state, [agent_client:name()]) end,
    try wait(fun() -> State() =:= Expected end, 2000)
    catch exit:{waited_in_vain, _, _} -> exit({not_clean, State()})
    end.

join(#target{node = Node}) -> agent_client:join(Node, #{}).

join(#target{node = Node}, Options) -> agent_client:join(Node, Options).

items(Sample) -> maps:get(items, Sample).

value(Item, Sample) ->
    case lists:keyfind(Item, 1, items(Sample)) of
        {Item, ok, _, _, Value} -> Value;
        Other -> exit({Item, Other})
    end.

%% Runs a function in a process of its own, which is a client of its own.
apart(Fun) ->
    Self = self(),
    spawn_link(fun() -> Self ! {self(), Fun()} end).

%% Whoever joined traps exits: then the end of the other one is a message.
result(Pid) ->
    receive
        {Pid, Result} -> Result;
        {'EXIT', Pid, Reason} when Reason =/= normal -> exit({apart, Reason})
    after 60000 -> exit(no_result)
    end.

%%% Joining and leaving ---------------------------------------------------------------------------------------

every_item(Target) ->
    #{joined := Joined} = Agent = join(Target),
    check("protocol", #{protocol => 1, shared => false, msacc_was_on => false, lease_ms => 30000, budget_ppm => 10000},
          maps:without([agent, session], Joined)),
    agent_client:sample(Agent, 1, ?HOT),
    Sample = agent_client:sample(Agent, 2, [facts | ?HOT] ++ ?SLOW ++ [no_such_item]),
    check("items in order", [facts | ?HOT] ++ ?SLOW ++ [no_such_item], [element(1, I) || I <- items(Sample)]),
    check("unknown item", {unsupported, #{}}, begin {_, S, _, _, V} = lists:last(items(Sample)), {S, V} end),
    [has_keys(Item, value(Item, Sample)) || Item <- [facts | ?HOT] ++ ?SLOW],
    #{begin_ns := Begin, end_ns := End, clients := 1, agent := Own} = Sample,
    check("time goes on", Begin < End),
    has_keys(agent, Own),
    Facts = value(facts, Sample),
    check("release", Target#target.release, binary_to_integer(maps:get(otp_release, Facts))),
    check("applications", true, lists:keymember(<<"kernel">>, 1, maps:get(applications, Facts))),
    check("features", Target#target.release >= 25, lists:member(<<"parent">>, maps:get(features, Facts))),
    Threads = maps:get(threads, value(msacc, Sample)),
    check("threads", maps:get(schedulers, Facts), length([T || {scheduler, _, _} = T <- Threads])),
    check("rows", maps:get(schedulers, Facts) + maps:get(dirty_cpu_schedulers, Facts) + maps:get(dirty_io_schedulers, Facts),
          length(maps:get(rows, value(scheduler_wall_time, Sample)))),
    check("all processes", value(counts, Sample), fun(#{processes := P}) -> abs(P - maps:get(total, value(procs, Sample))) < 5 end),
    {beamtune, left} = agent_client:leave(Agent).

%% The Rust side is tested on these bytes: so they must be what the agent takes and gives.
fixtures(#target{release = Release} = Target) ->
    Read = fun(Name) ->
               {ok, Bytes} = file:read_file(filename:join(os:getenv("AGENT_FIXTURES"), Name ++ ".etf")),
               binary_to_term(Bytes)
           end,
    Answer = fun(Name) -> Read(lists:concat(["r", Release, "-", Name])) end,
    [{'Beam', _}, {'Client', _}, {'Name', _}, {'Options', Options}] = Read("request-bindings"),
    #{agent := Pid, joined := Joined} = Agent = join(Target, Options),
    {beamtune, joined, Told} = Answer("joined"),
    check("joined", lists:sort(maps:keys(Joined)), lists:sort(maps:keys(Told))),
    agent_client:sample(Agent, 1, [procs]),
    [begin
         Request = Read("request-" ++ Name),
         Pid ! setelement(2, Request, self()),
         Seq = element(3, Request),
         {Items, Found} = receive {beamtune, sample, Seq, #{items := I}} -> {I, Answer(Name)} after 5000 -> exit({no_answer, Name}) end,
         {beamtune, sample, Seq, #{items := Recorded} = Sample} = Found,
         has_keys(sample, Sample),
         has_keys(agent, maps:get(agent, Sample)),
         check("items", [{N, S} || {N, S, _, _, _} <- Items], [{N, S} || {N, S, _, _, _} <- Recorded]),
         [has_keys(N, V) || {N, ok, _, _, V} <- Items ++ Recorded],
         [check({"keys of", N}, lists:sort(maps:keys(A)), lists:sort(maps:keys(B)))
          || {{N, ok, _, _, A}, {N, ok, _, _, B}} <- lists:zip(Items, Recorded), N =/= ports]
     end || Name <- ["sample-hot", "sample-slow", "sample-host", "sample-asked"]],
    {beamtune, sample, 1, #{items := [{facts, ok, _, _, Facts}, {procs, ok, _, _, First}, {no_such_item, unsupported, _, _, _}]}} =
        Answer("sample-facts"),
    has_keys(facts, Facts),
    check("first round", false, maps:is_key(delta_reductions, First)),
    {beamtune, bad_request, <<_/binary>>} = Answer("bad-request"),
    {beamtune, left, #{remaining := 0}} = Answer("left"),
    {beamtune, left} = Answer("session-exit"),
    Pid ! setelement(2, Read("request-renew"), self()),
    Pid ! setelement(2, Read("request-leave"), self()),
    receive {beamtune, left, #{remaining := 0}} -> ok after 5000 -> exit(no_answer) end.

has_keys(Item, Value) ->
    Missing = keys(Item) -- maps:keys(Value),
    check({Item, missing}, [], Missing).

keys(facts) ->
    [otp_release, erts_version, system_version, system_architecture, os_type, build_type, word_bytes, os_pid, creation, node,
     start_ns, now_ns, now_system_us, time_offset_ns, native_per_s, perf_counter_per_s, emu_args, init_args, env, schedulers,
     schedulers_online, dirty_cpu_schedulers, dirty_cpu_schedulers_online, dirty_io_schedulers, async_threads,
     scheduler_bind_type, scheduler_bindings, logical_processors, logical_processors_online, logical_processors_available,
     cpu_quota, process_limit, port_limit, atom_limit, ets_limit, time_correction, time_warp_mode,
     os_monotonic_time_source, kernel_poll, message_queue_data, fullsweep_after, min_heap_size_words,
     min_bin_vheap_size_words, max_heap_size_words, port_parallelism, dist_buf_busy_limit_bytes, alloc_util_allocators,
     disabled_allocators, applications, connected_nodes, hidden_nodes, known_nodes, multi_scheduling, features];
keys(sample) -> [begin_ns, end_ns, system_us, os_system_us, clients, agent, items];
keys(agent) -> [agent_reductions, collector_reductions, cost_us, scan_us, memory_bytes, restarts, dropped];
keys(msacc) -> [states, threads];
keys(scheduler_wall_time) -> [rows];
keys(run_queues) -> [lengths, active];
keys(statistics) ->
    [reductions, gc_count, gc_reclaimed_words, io_in_bytes, io_out_bytes, context_switches, runtime_ms, wall_ms];
keys(memory) -> [total, processes, processes_used, system, atom, atom_used, binary, code, ets];
keys(counts) -> [processes, ports, atoms, ets, spawned];
keys(check_io) -> [max_fds, pollsets];
keys(procs) ->
    [since_first_ns, since_last_ns, delta_reductions, new, gone, queue_sum, queue_max, queue_nonempty, top_reductions,
     top_queues, skipped | keys(part)];
keys(processes) -> [rows | keys(part)];
keys(spawns) -> [new, sampled, calls];
keys(ran) -> [sampled];
keys(weigh) -> [sampled];
keys(messages) -> [active, sampled, us, off_heap, sizes, rows];
keys(stands) -> [total, sampled, waiting, rows, waited_for];
keys(ets) -> [memory_bytes, unread, rows, owners | keys(part)];
keys(ports) -> [in_bytes, out_bytes, queue_bytes, kinds, owners, rows, sockets | keys(part)];
keys(dist) -> [busy_limit_bytes, total, rows];
keys(events) -> [how, floods, counts, lost, rows];
keys(host) -> [told];
keys(carriers) -> [estimate, walked, skipped, rows, left_out, free_bounds];
keys(allocations) -> [estimate, walked, skipped, tagged, rows, bounds, left_out, unscanned_bytes];
keys(code_memory) ->
    [rows, applications, modules, bytes, old_bytes, unread, stopped_us, persistent_terms, persistent_term_bytes];
keys(holders) -> [total, scanned, rows, binaries, bytes, complete];
keys(collect) ->
    [how, processes, chosen, largest, rest_bytes, collected, gone, no_answer, large, heap_before, heap_after, binary_before,
     binary_after, by_chance, memory_before, memory_after, us, longest_us, late_ms, queue, stopped, rows];
%% Of an emulator that counts no locks.
keys(locks) -> [told];
keys(allocators) -> [disabled, instances, foreign, mseg, mmap];
keys(part) -> [total, scanned, round, part, last].

only_plain_data(Target) ->
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [facts | ?HOT] ++ ?SLOW),
    {ok, Source} = file:read_file(os:getenv("AGENT_SOURCE")),
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Source)),
    %% Those of the agent's source, and the VM's own sets: states, thread types, statuses, and so on.
    Known = sets:from_list([A || {atom, _, A} <- Tokens]
                           ++ [aux, check_io, emulator, gc, other, port, sleep, scheduler, dirty_cpu_scheduler,
                               dirty_io_scheduler, async, poll, waiting, running, runnable, suspended, exiting,
                               garbage_collecting, total, processes, processes_used, system, atom, atom_used, binary,
                               code, ets, normal, high, low, max, on_heap, off_heap, set, ordered_set, bag,
                               duplicate_bag, public, protected, private, unbound, unknown, true, false, undefined,
                               num_sockets, num_cnt_bits, num_dinet, num_dinet6, num_dlocal, num_pip, num_psctp, num_ptcp,
                               num_pudp, num_tdgrams, num_tseqpkgs, num_tstreams]),
    plain(Sample, Known),
    plain(agent_client:sample(Agent, 2, [{carriers, #{pools => true}}, {allocations, #{pools => true}}, code_memory, holders,
                                         {collect, #{max_processes => 10}}, locks]), Known),
    agent_client:leave(Agent).

plain(Term, Known) when is_map(Term) -> maps:fold(fun(K, V, _) -> plain(K, Known), plain(V, Known) end, ok, Term);
plain(Term, Known) when is_tuple(Term) -> plain(tuple_to_list(Term), Known);
plain(Term, Known) when is_list(Term) -> lists:foreach(fun(T) -> plain(T, Known) end, Term);
plain(Term, _) when is_integer(Term) -> ok;
plain(Term, _) when is_binary(Term), byte_size(Term) =< 512 -> check("utf8", Term, unicode:characters_to_binary(Term));
plain(Term, Known) when is_atom(Term) -> check({"unknown atom", Term}, sets:is_element(Term, Known));
plain(Term, _) -> exit({not_plain, Term}).

leaves_nothing(Target) ->
    Cycle = fun() ->
                Agent = join(Target),
                agent_client:sample(Agent, 1, [facts | ?HOT] ++ ?SLOW),
                check("module", true, maps:get(module, call(Target, state, [agent_client:name()]))),
                check("left", {beamtune, left}, agent_client:leave(Agent)),
                check("at once", ?CLEAN, call(Target, state, [agent_client:name()]))
            end,
    Count = fun() ->
                [call(Target, erlang, system_info, [K]) || K <- [atom_count, ets_count, port_count]]
                    ++ [length(call(Target, erlang, processes, []))]
            end,
    Cycle(),
    Cycle(),
    Before = Count(),
    [Cycle() || _ <- lists:seq(1, 10)],
    check("counts of atoms, tables, ports, processes", Before, Count()).

%% A collector that is told to end goes on for a moment, and what it does then must not come after the undoing.
leaves_while_sampling(Target) ->
    [begin
         #{agent := Pid} = Agent = join(Target),
         Pid ! {sample, self(), N, lists:duplicate(32, msacc), #{}},
         erlang:yield(),
         {beamtune, left} = agent_client:leave(Agent),
         check({"after leaving", N}, ?CLEAN, call(Target, state, [agent_client:name()]))
     end || N <- lists:seq(1, 100)].

%% A client that samples for ever, in a VM of its own; run by killed_clients.
victim([Node, Cookie]) ->
    erlang:set_cookie(node(), list_to_atom(Cookie)),
    Target = list_to_atom(Node),
    true = net_kernel:connect_node(Target),
    io:put_chars("now\n"),
    Agent = agent_client:join(Target, #{}),
    victim_loop(Agent, 1).

victim_loop(Agent, Seq) ->
    agent_client:sample(Agent, Seq, ?HOT ++ ?SLOW),
    victim_loop(Agent, Seq + 1).

%% Killed 24 times, at moments from "the message is being sent" to "sampling for some time". The connection breaks as it
%% would on a lost network.
killed_clients(Target) ->
    agent_client:leave(join(Target)),
    Population = call(Target, idle, [2000]),
    kill_one(Target, 300),
    Count = fun() -> [length(call(Target, erlang, processes, [])), call(Target, erlang, system_info, [port_count])] end,
    Before = Count(),
    Atoms = call(Target, erlang, system_info, [atom_count]),
    Times = [kill_one(Target, rand:uniform(Most) - 1) || Most <- [2, 5, 10, 20, 50, 100, 500], _ <- lists:seq(1, 3)]
        ++ [kill_one(Target, 1000) || _ <- lists:seq(1, 3)],
    wait(fun() -> Before =:= Count() end, 2000),
    check("atoms", Atoms, call(Target, erlang, system_info, [atom_count])),
    io:format("        clean after ~b ms at the median, ~b ms at most~n",
              [lists:nth(length(Times) div 2, lists:sort(Times)), lists:max(Times)]),
    call(Target, stop, [Population]).

kill_one(#target{node = Node} = Target, After) ->
    Args = ["-c", "echo $$; exec \"$@\"", "sh", "erl", "-noinput", "-hidden", "-name", "agent_victim_" ++ os:getpid() ++ "@127.0.0.1",
            "-pa", filename:dirname(code:which(?MODULE)),
            "-run", "agent_test", "victim", atom_to_list(Node), atom_to_list(erlang:get_cookie())],
    Port = open_port({spawn_executable, "/bin/sh"}, [{args, Args}, {line, 100}, exit_status]),
    Pid = receive {Port, {data, {eol, P}}} -> P after 10000 -> exit(no_victim) end,
    receive {Port, {data, {eol, "now"}}} -> ok after 20000 -> exit(victim_does_not_start) end,
    receive after After -> ok end,
    os:cmd("kill -9 " ++ Pid),
    receive {Port, {exit_status, _}} -> ok after 5000 -> exit(victim_lives) end,
    clean(Target).

lease(Target) ->
    Agent = join(Target, #{lease_ms => 1000}),
    agent_client:sample(Agent, 1, ?HOT),
    #{session := Session} = Agent,
    receive {'EXIT', Session, {beamtune, client_gone}} -> ok after 4000 -> exit(lease_never_ends) end.

%% Also across the point where the number of a pid outgrows its first part.
short_lived(Target) ->
    Agent = join(Target),
    [counts_spawned(Agent, Target, N, Many) || {N, Many} <- [{1, 100}, {3, 40000}]],
    {beamtune, left} = agent_client:leave(Agent).

%% Most slots are held all the time.
small_table(Target) ->
    call(Target, agent_target, idle, [500]),
    Agent = join(Target),
    [counts_spawned(Agent, Target, N, 20000) || N <- [1, 3]],
    %% Where hardly any is free, none is taken, and the others are counted all the same.
    call(Target, agent_target, idle, [400]),
    Counts = value(counts, agent_client:sample(Agent, 5, [counts])),
    check("nearly full", {maps:is_key(spawned, Counts), maps:get(processes, Counts)}, fun({Is, N}) -> not Is andalso N > 924 end),
    {beamtune, left} = agent_client:leave(Agent).

counts_spawned(Agent, Target, N, Many) ->
    Spawned = fun(At) -> maps:get(spawned, value(counts, agent_client:sample(Agent, At, [counts]))) end,
    Before = Spawned(N),
    call(Target, agent_target, short_lived, [Many]),
    check({"started", Many}, Spawned(N + 1) - Before, fun(Counted) -> Counted >= Many andalso Counted < 3 * Many + 200 end).

renew(Target) ->
    #{agent := Pid} = Agent = join(Target, #{lease_ms => 1000}),
    [begin Pid ! {renew, self()}, receive after 400 -> ok end end || _ <- lists:seq(1, 5)],
    agent_client:sample(Agent, 1, [counts]),
    {beamtune, left} = agent_client:leave(Agent).

two_clients(Target) ->
    #{agent := Pid} = First = join(Target),
    Second = apart(fun() ->
                       #{agent := Shared, joined := #{shared := IsShared}} = Agent = join(Target),
                       agent_client:sample(Agent, 1, ?HOT),
                       receive go -> ok end,
                       {Shared, IsShared, agent_client:sample(Agent, 2, ?HOT) =/= none, agent_client:leave(Agent)}
                   end),
    wait(fun() -> maps:get(clients, agent_client:sample(First, 1, [procs])) =:= 2 end, 5000),
    {remaining, 1} = agent_client:leave(First),
    check("still there", #{scheduler_wall_time => true, module => true, registered => true},
          maps:with([scheduler_wall_time, module, registered], call(Target, state, [agent_client:name()]))),
    Second ! go,
    check("second", {Pid, true, true, {beamtune, left}}, result(Second)),
    %% The first one's session, the keeper, has ended with the last client.
    #{session := Session} = First,
    receive {'EXIT', Session, {beamtune, left}} -> ok after 2000 -> exit(keeper_stays) end.

%% As docs/agent-protocol.md says.
its_processes(Target) ->
    agent_client:leave(join(Target)),
    Count = fun() -> call(Target, erlang, system_info, [process_count]) end,
    Before = Count(),
    Agent = join(Target),
    Grown = fun(Items) ->
                agent_client:sample(Agent, 1, Items),
                Count() - Before
            end,
    check("keeper, agent, collector, reader", 4, Grown([procs | ?SLOW])),
    check("watcher", 5, Grown([events])),
    check("filer", 6, Grown([{host, #{ask => [threads]}}])),
    Second = member(Target),
    joined(Second),
    check("session, collector, reader", 9, Count() - Before),
    Second ! go,
    result(Second),
    [Idle, Tables] = [call(Target, F, [31000]) || F <- [idle, unnamed_tables]],
    Books = [books(Target, Agent, N) || N <- lists:seq(1, 300)],
    check("lists", lists:max(Books), fun(Most) -> Most > 1 andalso Most =< 6 end),
    [call(Target, stop, [P]) || P <- [Idle, Tables]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 10000),
    agent_client:leave(Agent).

%% How many lists are in use or being made after a sample.
books(Target, #{agent := Pid} = Agent, Seq) ->
    agent_client:sample(Agent, Seq, [procs, processes, ets]),
    Links = fun(P) -> {links, L} = call(Target, erlang, process_info, [P, links]), L end,
    lists:max([length(Links(P)) || P <- Links(Pid)]) - 2.

two_at_once(Target) ->
    [begin
         Both = [member(Target), member(Target)],
         [Pid, Same] = [joined(P) || P <- Both],
         check("the same agent", Pid, Same),
         [P ! go || P <- Both],
         [result(P) || P <- Both],
         clean(Target)
     end || _ <- lists:seq(1, 10)].

%% A client that joins, says so, and leaves when it is told.
member(Target) ->
    Self = self(),
    apart(fun() ->
              #{agent := Pid} = Agent = join(Target),
              agent_client:sample(Agent, 1, ?HOT),
              Self ! {joined, self(), Pid},
              receive go -> agent_client:leave(Agent) end
          end).

joined(Member) -> receive {joined, Member, Pid} -> Pid after 10000 -> exit(has_not_joined) end.

join_while_leaving(Target) ->
    [begin
         First = join(Target),
         Second = apart(fun() ->
                            receive after Wait -> ok end,
                            Agent = join(Target),
                            agent_client:sample(Agent, 1, ?HOT),
                            agent_client:leave(Agent)
                        end),
         agent_client:leave(First),
         {beamtune, left} = result(Second),
         clean(Target)
     end || Wait <- lists:append(lists:duplicate(6, [0, 1, 2, 3, 5]))].

too_many(Target) ->
    Members = [member(Target) || _ <- lists:seq(1, 8)],
    [joined(M) || M <- Members],
    Session = agent_client:inject(Target#target.node, #{}),
    receive {'EXIT', Session, {beamtune, failed, Why}} -> check("why", is_binary(Why))
    after 5000 -> exit(not_refused) end,
    [M ! go || M <- Members],
    [result(M) || M <- Members].

%%% Things that die -------------------------------------------------------------------------------------------

agent_killed(Target) ->
    #{agent := Pid, session := Session} = join(Target),
    exit(Pid, kill),
    receive {'EXIT', Session, {beamtune, agent_ended, Why}} -> check("why", <<"killed">>, Why)
    after 5000 -> exit(session_stays) end,
    clean(Target),
    Again = join(Target),
    agent_client:sample(Again, 1, ?HOT),
    agent_client:leave(Again).

collector_killed(Target) ->
    #{agent := Pid} = Agent = join(Target),
    agent_client:sample(Agent, 1, ?HOT -- [events]),
    {links, [Collector]} = call(Target, erlang, process_info, [Pid, links]),
    exit(Collector, kill),
    Sample = agent_client:sample(Agent, 2, ?HOT),
    check("restarts", 1, maps:get(restarts, maps:get(agent, Sample))),
    agent_client:leave(Agent).

keeper_killed(Target) ->
    #{session := Keeper} = Agent = join(Target),
    agent_client:sample(Agent, 1, ?HOT),
    exit(Keeper, kill),
    receive {'EXIT', Keeper, killed} -> ok after 5000 -> exit(session_stays) end,
    clean(Target),
    Again = join(Target),
    agent_client:sample(Again, 1, ?HOT),
    agent_client:leave(Again).

%%% The VM's switches -----------------------------------------------------------------------------------------

msacc_in_windows(Target) ->
    Agent = join(Target),
    {_, Before, Begin} = accounted(Agent, 1),
    %% Each asks for a window of 20 ms before the next one.
    Seqs = lists:seq(2, 16),
    Samples = [begin receive after 100 -> ok end, accounted(Agent, Seq) end || Seq <- Seqs],
    {Unit, After, End} = lists:last(Samples),
    %% All threads are in some state all the time.
    Shares = [1.0e9 * (A - B) / Unit / (End - Begin) || {Id, A} <- maps:to_list(After), {I, B} <- maps:to_list(Before), I =:= Id],
    check("windows", Shares, fun(_) -> lists:min(Shares) > 0.05 andalso lists:max(Shares) < 0.6 end),
    check("of one length for all", Shares, fun(_) -> lists:max(Shares) < 1.3 * lists:min(Shares) end),
    wait(fun() -> not is_accounting(Target) end, 5000),
    agent_client:leave(Agent).

%% {units in a second, by thread what is counted, when in ns}
accounted(Agent, Seq) ->
    Sample = agent_client:sample(Agent, Seq, [facts, msacc]),
    {msacc, ok, At, _, #{threads := Threads}} = lists:keyfind(msacc, 1, items(Sample)),
    {maps:get(perf_counter_per_s, value(facts, Sample)),
     maps:from_list([{{Type, Id}, lists:sum(Counters)} || {Type, Id, Counters} <- Threads]), At}.

is_accounting(Target) -> maps:get(msacc, call(Target, state, [agent_client:name()])).

msacc_was_on(Target) ->
    call(Target, erlang, system_flag, [microstate_accounting, true]),
    #{joined := #{msacc_was_on := true}} = Agent = join(Target),
    agent_client:sample(Agent, 1, ?HOT),
    agent_client:leave(Agent),
    clean(Target, maps:put(msacc, true, ?CLEAN)),
    call(Target, erlang, system_flag, [microstate_accounting, false]).

msacc_switched_on(Target) ->
    Agent = join(Target),
    wait(fun() -> not is_accounting(Target) end, 5000),
    call(Target, erlang, system_flag, [microstate_accounting, true]),
    %% Some windows come and go.
    [begin receive after 50 -> ok end, agent_client:sample(Agent, Seq, [msacc]) end || Seq <- lists:seq(1, 10)],
    check("on", true, is_accounting(Target)),
    agent_client:leave(Agent),
    clean(Target, maps:put(msacc, true, ?CLEAN)),
    call(Target, erlang, system_flag, [microstate_accounting, false]).

msacc_switched_off(Target) ->
    Agent = join(Target),
    call(Target, erlang, system_flag, [microstate_accounting, false]),
    {_, Before, _} = accounted(Agent, 1),
    wait(fun() -> {_, After, _} = accounted(Agent, 2), After =/= Before end, 5000),
    agent_client:leave(Agent).

%%% Hard nodes ------------------------------------------------------------------------------------------------

hanging_process(Target) ->
    Pid = call(Target, hanging, []),
    Depth = call(Target, depth, []),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs]),
    %% Some seconds on one scheduler. Processes that spin keep the other ones awake, so that they take over its work.
    Busy = call(Target, busy, [8]),
    wait(fun() -> lists:min(lists:droplast(call(Target, erlang, statistics, [active_tasks]))) > 1 end, 5000),
    call(Target, hang, [Pid, Depth]),
    Bin = list_to_binary(call(Target, erlang, pid_to_list, [Pid])),
    Sample = agent_client:sample(Agent, 2, [procs, counts]),
    {procs, ok, _, Cost, Value} = lists:keyfind(procs, 1, items(Sample)),
    check("left out", [Bin], [P || {P, _} <- maps:get(skipped, Value)]),
    check("the others are read, and the round goes on", {2, true}, {maps:get(round, Value), maps:is_key(delta_reductions, Value)}),
    check("soon", Cost < 1000000),
    #{processes := _} = value(counts, Sample),
    Next = agent_client:sample(Agent, 3, [procs]),
    check("left out", [Bin], [P || {P, _} <- maps:get(skipped, value(procs, Next))]),
    check("no restarts", 0, maps:get(restarts, maps:get(agent, Next))),
    %% A purge waits for every process: so it is not begun before this one answers again.
    call(Target, stop, [Pid]),
    agent_client:leave(Agent),
    call(Target, stop, [Busy]).

long_purge(Target) ->
    Pid = call(Target, hanging, []),
    Depth = call(Target, depth, []),
    Busy = call(Target, busy, [8]),
    wait(fun() -> lists:min(lists:droplast(call(Target, erlang, statistics, [active_tasks]))) > 1 end, 5000),
    #{agent := Agent} = join(Target),
    call(Target, hang, [Pid, Depth]),
    Agent ! {leave, self()},
    receive {beamtune, left, #{remaining := 0}} -> ok after 5000 -> exit(no_answer) end,
    Second = apart(fun() ->
                       Joined = join(Target),
                       receive {beamtune, waiting} -> ok after 0 -> exit(not_told_to_wait) end,
                       agent_client:leave(Joined)
                   end),
    {beamtune, left} = result(Second),
    [call(Target, stop, [P]) || P <- [Pid, Busy]].

calm(Target) ->
    [Idle, Busy] = [call(Target, idle, [5000]), call(Target, busy, [16])],
    wait(fun() -> call(Target, erlang, statistics, [total_run_queue_lengths]) > 4 end, 5000),
    [begin
         {Us, {beamtune, left}} = timer:tc(fun() -> agent_client:leave(join(Target)) end),
         check("soon", Us < 2000000),
         check("all but the module", ?CLEAN#{module => true}, call(Target, state, [agent_client:name()]))
     end || _ <- [1, 2]],
    call(Target, stop, [Busy]),
    wait(fun() -> call(Target, state, [agent_client:name()]) =:= ?CLEAN end, 5000),
    call(Target, stop, [Idle]).

overloaded(Target) ->
    Busy = call(Target, busy, [200]),
    Agent = join(Target),
    [begin
         Sample = agent_client:sample(Agent, N, ?HOT ++ ?SLOW),
         check("all ok", [], [I || I <- items(Sample), element(2, I) =/= ok])
     end || N <- [1, 2, 3]],
    agent_client:leave(Agent),
    call(Target, stop, [Busy]).

%% Each list is made at priority normal, for which one turn takes long here.
long_lists(Target) ->
    [Idle, Tables] = [call(Target, F, [40000]) || F <- [idle, unnamed_tables]],
    Busy = call(Target, busy, [400]),
    Agent = join(Target),
    First = agent_client:sample(Agent, 1, [procs, processes, ets]),
    [begin
         check({Item, "not read yet"}, #{scanned => 0, part => 0, last => false},
               maps:with([scanned, part, last], Value)),
         check({Item, "total"}, maps:get(total, Value), fun(Total) -> Total > 40000 end),
         check({Item, "microseconds"}, Us, fun(_) -> Us < 250000 end)
     end || {Item, ok, _, Us, Value} <- items(First)],
    check("no sums", [], maps:keys(maps:with([memory_bytes, unread], value(ets, First)))),
    %% The lists are taken when they are there, and are not begun anew each time.
    [wait(fun() ->
              Value = value(Item, agent_client:sample(Agent, 2, [procs, Item])),
              maps:get(scanned, Value) > 0 andalso maps:get(total, Value) > 40000
          end, 60000) || Item <- [procs, processes, ets]],
    call(Target, stop, [Busy]),
    %% Round follows round, and each reads all.
    Parts = table_parts(Agent, 3),
    [#{total := Total} | _] = Second = [P || #{round := 2} = P <- Parts],
    check("the whole list", Total, lists:sum([maps:get(scanned, P) || P <- Second])),
    [call(Target, stop, [P]) || P <- [Idle, Tables]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 10000),
    agent_client:leave(Agent).

one_list_at_a_time(Target) ->
    [Idle, Tables] = [call(Target, F, [40000]) || F <- [idle, unnamed_tables]],
    Busy = call(Target, busy, [100]),
    #{agent := Pid} = Agent = join(Target),
    Pid ! {sample, self(), 1, [procs, ets], #{}},
    {#{end_ns := End}, Looks} = looking_at_listers(Target, Pid, []),
    check("while a sample is read", [], [L || {N, At} = L <- Looks, N > 0, At < End]),
    wait(fun() ->
             Sample = agent_client:sample(Agent, 2, [procs, ets]),
             check("one at a time", call(Target, listers, [Pid]), fun({Listers, _}) -> Listers =< 1 end),
             lists:all(fun(Item) -> maps:get(scanned, value(Item, Sample)) > 0 end, [procs, ets])
         end, 60000),
    [call(Target, stop, [P]) || P <- [Busy, Idle, Tables]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 10000),
    agent_client:leave(Agent).

%% Until the first sample is there.
looking_at_listers(Target, Pid, Looks) ->
    receive {beamtune, sample, 1, Sample} -> {Sample, Looks}
    after 0 -> looking_at_listers(Target, Pid, [call(Target, listers, [Pid]) | Looks])
    end.

%% What `ets' tells until it has begun a round.
table_parts(Agent, Round) ->
    case value(ets, agent_client:sample(Agent, 3, [ets])) of
        #{round := Round} -> [];
        Value -> [Value | table_parts(Agent, Round)]
    end.

flooded(Target) ->
    Pid = call(Target, flood, [1000000]),
    Bin = list_to_binary(call(Target, erlang, pid_to_list, [Pid])),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, processes]),
    Sample = agent_client:sample(Agent, 2, [procs, processes]),
    #{queue_max := 1000000, top_queues := [{Bin, 1000000, _, _} | _]} = value(procs, Sample),
    [Row] = [R || #{pid := P} = R <- maps:get(rows, value(processes, Sample)), P =:= Bin],
    #{message_queue_len := 1000000, by := By} = Row,
    check("why it is listed", lists:member(queue, By)),
    %% Nothing of it was copied: the agent's memory stays small.
    check("memory", maps:get(memory_bytes, maps:get(agent, Sample)), fun(Bytes) -> Bytes < 2000000 end),
    agent_client:leave(Agent),
    call(Target, erlang, exit, [Pid, kill]).

strange_names(#target{release = Release} = Target) ->
    Long = list_to_atom(lists:duplicate(255, 16#1F98A)),
    Elixir = 'Elixir.My.Größe',
    Control = list_to_atom("a\e[31m\n\0b"),
    Pids = [call(Target, named, [Name]) || Name <- [Long, Elixir, Control]],
    Tables = call(Target, tables, [[list_to_atom("tab_" ++ lists:duplicate(200, 16#4E2D)), 'my table']]),
    Deep = lists:foldl(fun(N, T) -> {N, T, <<0:80000>>} end, [], lists:seq(1, 2000)),
    Labels = [Deep, <<"größe"/utf8>>, <<255, 254, 0>>, "größe", [1 | 2], #{key => lists:seq(1, 100000)}, {my_worker, 7}],
    Labelled = [call(Target, labelled, [L]) || Release >= 27, L <- Labels],
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [procs, {processes, #{top => 50}}, {ets, #{top => 50}}]),
    Rows = maps:get(rows, value(processes, Sample)),
    Names = [N || #{name := N} <- Rows],
    check("cut", true, lists:any(fun(N) -> byte_size(N) =:= 252 end, Names)),
    check("elixir", true, lists:member(<<"Elixir.My.Größe"/utf8>>, Names)),
    check("control", true, lists:member(<<"a\e[31m\n\0b">>, Names)),
    check("utf8", [], [N || N <- Names, unicode:characters_to_binary(N) =/= N orelse byte_size(N) > 255]),
    check("table", true, lists:member(<<"my table">>, [N || #{name := N, named := true} <- maps:get(rows, value(ets, Sample))])),
    Texts = [L || #{label := L} <- Rows],
    check("labels", length(Labelled), length(Texts)),
    check("bounded", [], [T || T <- Texts, byte_size(T) > 512 orelse unicode:characters_to_binary(T) =/= T]),
    Release >= 27 andalso check("plain labels", [], [<<"größe"/utf8>>, <<"{my_worker,7}">>, <<"[1|2]">>] -- Texts),
    agent_client:leave(Agent),
    [call(Target, stop, [P]) || P <- [Tables | Pids ++ Labelled]].

vanishing_tables(Target) ->
    Churn = call(Target, churn_tables, [4]),
    Agent = join(Target),
    [begin
         Sample = agent_client:sample(Agent, N, [ets]),
         #{total := _} = value(ets, Sample)
     end || N <- lists:seq(1, 50)],
    agent_client:leave(Agent),
    call(Target, stop, [Churn]).

churn(Target) ->
    Churn = call(Target, churn_processes, [4]),
    Idle = call(Target, idle, [1000]),
    Agent = join(Target),
    Samples = [agent_client:sample(Agent, N, [procs, processes, spawns]) || N <- lists:seq(1, 30)],
    [check("sane", value(procs, S), fun(#{new := New, gone := Gone, scanned := Scanned} = V) ->
                                       New >= 0 andalso Gone >= 0 andalso Scanned > 0
                                           andalso maps:get(delta_reductions, V, 0) >= 0
                                   end) || S <- Samples],
    call(Target, stop, [Churn]),
    call(Target, stop, [Idle]),
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 200 end, 10000),
    agent_client:leave(Agent).

%% While nothing runs, every number can be compared with the truth. Two rounds follow each change, because a round that
%% finds as many processes as before uses its old list.
exact(Target) -> exact(Target, 1000000, 1000).

exact_in_parts(Target) -> exact(Target, 100, 3000).

exact(Target, Budget, Count) ->
    Population = call(Target, population, [Count]),
    Agent = join(Target, #{budget_ppm => Budget}),
    Before = maps:from_list(ask(Population, work)),
    _ = whole_rounds(Agent, 2),
    lists:foldl(fun({End, Start}, Known) ->
                    {Started, Ended} = ask(Population, {turnover, End, Start}),
                    Truth = maps:from_list(ask(Population, work)),
                    Values = whole_rounds(Agent, 2),
                    Sum = fun(Key) -> lists:sum([maps:get(Key, V) || V <- Values]) end,
                    check({new, End, Start}, Started, Sum(new)),
                    check({gone, End, Start}, Ended, Sum(gone)),
                    Deltas = lists:foldl(fun({Pid, D, _, _}, Map) -> maps:update_with(Pid, fun(B) -> B + D end, D, Map) end,
                                         #{}, lists:append([maps:get(top_reductions, V) || V <- Values])),
                    Worked = maps:filter(fun(_, D) -> D > 1500 end,
                                         maps:map(fun(Pid, R) -> R - maps:get(Pid, Known, 0) end, Truth)),
                    check("enough have worked", map_size(Worked), fun(N) -> N > 30 end),
                    %% Being asked may cost a process a reduction or two.
                    Wrong = [{Pid, D, maps:get(Pid, Deltas, none)}
                             || {Pid, D} <- maps:to_list(Worked), abs(D - maps:get(Pid, Deltas, 0)) > 5],
                    check({"deltas", End, Start}, [], Wrong),
                    Truth
                end, Before, [{0, 0}, {10, 0}, {0, 10}, {10, 10}, {300, 300}, {200, 0}, {0, 400}, {1, 1}, {500, 100}, {0, 0}]),
    agent_client:leave(Agent),
    call(Target, stop, [Population]).

%% With so many processes a round takes three samples, and a list of them is made beside, now and then: what is hot at first is
%% told by the third one; a new one when a list and a round have passed, and from then on in each.
hot_among_many(Target) ->
    Idle = call(Target, idle, [100000]),
    Hot = call(Target, busy, [1]),
    Agent = join(Target),
    check("the first one", lists:member(true, [found(Hot, Agent) || _ <- [1, 2, 3]])),
    check("in each", [true, true, true], [found(Hot, Agent) || _ <- [1, 2, 3]]),
    call(Target, stop, [Hot]),
    Later = call(Target, busy, [1]),
    check("a later one", found_in_rounds(Later, Agent, 4)),
    check("that in each", [true, true, true], [found(Later, Agent) || _ <- [1, 2, 3]]),
    agent_client:leave(Agent),
    %% With so many, taking the module out would be felt: the next one does, when there are fewer.
    check("all but the module", ?CLEAN#{module => true}, call(Target, state, [agent_client:name()])),
    [call(Target, stop, [P]) || P <- [Idle, Later]],
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 5000),
    agent_client:leave(join(Target)).

%% Whether the one that the process has started is told in the sample of the second that follows.
found(Keeper, Agent) -> element(1, found_or_last(Keeper, Agent)).

%% The same before so many rounds have ended. One round may have begun before the process did, one more may still go by the
%% list of that time. How many samples a round takes depends on the machine.
found_in_rounds(_, _, 0) -> false;
found_in_rounds(Keeper, Agent, Rounds) ->
    case found_or_last(Keeper, Agent) of
        {true, _} -> true;
        {false, Last} -> found_in_rounds(Keeper, Agent, case Last of true -> Rounds - 1; false -> Rounds end)
    end.

found_or_last(Keeper, Agent) ->
    {links, Links} = rpc:call(node(Keeper), erlang, process_info, [Keeper, links]),
    Pids = [list_to_binary(rpc:call(node(Keeper), erlang, pid_to_list, [P])) || P <- Links],
    timer:sleep(1000),
    #{top_reductions := Top, last := Last} = value(procs, agent_client:sample(Agent, 1, [procs])),
    {lists:any(fun({Pid, Delta, _, _}) -> lists:member(Pid, Pids) andalso Delta > 100000 end, Top), Last}.

%% Without a process of its own on the target, which would be new and gone too.
ask(Population, Question) ->
    Population ! {self(), Question},
    receive {Population, Answer} -> Answer after 30000 -> exit(no_answer) end.

new_processes(#target{release = Release} = Target) ->
    Population = call(Target, population, [100]),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs, spawns]),
    {50, 0} = ask(Population, {turnover, 0, 50}),
    agent_client:sample(Agent, 2, [procs]),
    #{new := 50, sampled := 20, calls := Calls} = value(spawns, agent_client:sample(Agent, 3, [procs, spawns])),
    Worker = {<<"agent_target">>, <<"worker">>, 0},
    Parent = case Release >= 25 of true -> {<<"agent_target">>, <<"population_loop">>, 1}; false -> undefined end,
    check("who made them", [{Worker, <<>>, Parent, 20}], Calls),
    agent_client:leave(Agent),
    call(Target, stop, [Population]).

waiting_for(Target) -> waiting_for(Target, fun(Holding) -> call(Target, services, [Holding]) end).

%% How many links and monitors there are is not known there.
waiting_for_a_hub(Target) -> waiting_for(Target, fun(_) -> [] end).

waiting_for(Target, Peered) ->
    Holding = call(Target, holding, [40]),
    Holder = list_to_binary(call(Target, erlang, pid_to_list, [call(Target, held, [Holding])])),
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [procs, {stands, #{sample => 1000}}, processes]),
    #{total := Total, sampled := Sampled, waiting := Waiting, rows := Rows, waited_for := For} = value(stands, Sample),
    %% A node with so few is looked at as a whole but for the agent's own processes.
    check("looked at", Sampled, fun(N) -> N > 80 andalso N < Total end),
    check("waiting", Waiting, fun(N) -> N > 40 andalso N =< Sampled end),
    [{Stack, 40, 0, On}] = [Row || {_, 40, _, _} = Row <- Rows],
    check("where they stand", [{<<"gen">>, <<"do_call">>, 4}, {<<"gen_server">>, <<"call">>, 3}], lists:sublist(Stack, 2)),
    check("for whom", [{Holder, 40}], On),
    [{_, Status, 0, [Top | _], Peers}] = [W || {Pid, _, _, _, _} = W <- For, Pid =:= Holder],
    check("whom it talks to", Peered(Holding), Peers),
    check("what that does", {waiting, <<"agent_target">>}, {Status, element(1, Top)}),
    [#{by := By}] = [Row || #{pid := Pid} = Row <- maps:get(rows, value(processes, Sample)), Pid =:= Holder],
    check("a closer look at it", true, lists:member(waited_for, By)),
    agent_client:leave(Agent),
    call(Target, stop, [Holding]).

%% Half of the receivers get a small one at a time, the others one of 80 kB.
weighed_messages(Target) ->
    Sending = call(Target, sending, [20, 5000]),
    Agent = join(Target),
    check("nobody known to work", 0, maps:get(sampled, value(weigh, agent_client:sample(Agent, 1, [procs, weigh])))),
    wait(fun() ->
             Sample = agent_client:sample(Agent, 2, [procs, weigh, messages, processes]),
             #{active := Active, sampled := Sampled, us := Us, sizes := Sizes, rows := Rows} = value(messages, Sample),
             Sampled > 0 andalso
                 begin
                     check("looked at", {Active, Sampled}, fun({A, S}) -> A >= S andalso S =< 60 end),
                     check("microseconds", Us, fun(_) -> Us >= 4000 andalso Us < 1000000 end)
                 end,
             %% One that comes between the look at a queue and that at the heap makes another one seem twice as large.
             [] =:= [0, 80000] -- [Bytes div Count || {Count, Bytes} <- Sizes] andalso
                 begin
                     [{Receiver, _, Heaviest} | Others] = Rows,
                     check("the heaviest first", Others, fun(_) -> lists:all(fun({_, _, Bytes}) -> Bytes =< Heaviest end, Others) end),
                     [#{by := By, initial_call := Call}] = [Row || #{pid := Pid} = Row <- maps:get(rows, value(processes, Sample)), Pid =:= Receiver],
                     check("a closer look at the receiver", true, lists:member(message, By)),
                     check("who that is", {<<"agent_target">>, <<"take_all">>, 0}, Call),
                     true
                 end
         end, 30000),
    agent_client:leave(Agent),
    call(Target, stop, [Sending]).

some_of_many(Target) ->
    Idle = call(Target, idle, [40000]),
    Agent = join(Target),
    check("no list yet", 0, maps:get(sampled, value(stands, agent_client:sample(Agent, 1, [procs, stands])))),
    wait(fun() ->
             [{stands, ok, _, Us, #{total := Total, sampled := Sampled, rows := Rows}}] =
                 [Item || {stands, _, _, _, _} = Item <- items(agent_client:sample(Agent, 2, [procs, {stands, #{sample => 100}}]))],
             Sampled > 0 andalso
                 begin
                     check("how many", {Total, Sampled}, fun({T, S}) -> T > 40000 andalso S > 20 andalso S =< 100 end),
                     check("where", [N || {[{<<"agent_target">>, <<"forever">>, 0} | _], N, 0, []} <- Rows],
                           fun([N]) -> N > Sampled div 2 end),
                     check("microseconds", Us, fun(_) -> Us < 250000 end),
                     true
                 end
         end, 60000),
    call(Target, stop, [Idle]),
    agent_client:leave(Agent).

%% The parts of so many rounds.
whole_rounds(_, 0) -> [];
whole_rounds(Agent, Rounds) ->
    Value = value(procs, agent_client:sample(Agent, Rounds, [{procs, #{top => 100}}])),
    [Value | whole_rounds(Agent, case maps:get(last, Value) of true -> Rounds - 1; false -> Rounds end)].

top_processes(#target{release = Release} = Target) ->
    Large = call(Target, large, [1000000]),
    Binary = call(Target, binaries, [50000000]),
    Busy = call(Target, busy, [1]),
    Idle = call(Target, idle, [3000]),
    %% It takes no messages; each of these has 16 bytes for a number.
    Waiting = spawn(node_of(Target), timer, sleep, [infinity]),
    [call(Target, erlang, send, [Waiting, lists:seq(1, 20000)]) || _ <- [1, 2]],
    Agent = join(Target),
    %% Each fourth round looks closely at a process with a small heap.
    Rows = sample_rounds(Agent, 6),
    Row = fun(Pid) ->
              Bin = list_to_binary(call(Target, erlang, pid_to_list, [Pid])),
              case [R || #{pid := P} = R <- Rows, P =:= Bin] of [R] -> R; [] -> exit({not_listed, Bin}) end
          end,
    #{by := By, heap_bytes := Bytes, initial_call := {<<"agent_target">>, _, _}} = Row(Large),
    check("memory", lists:member(memory, By) andalso Bytes > 16000000),
    #{by := By3, message_queue_len := 2, fragment_bytes := Loose, heap_bytes := Heap, memory_bytes := Memory} = Row(Waiting),
    %% A collection may have moved them into the heap; beside it are their heads and the process's structure.
    check("waiting messages", lists:member(queue, By3) andalso Loose < Heap andalso Heap >= 640000),
    check("what is beside the heap", Memory - Heap > 2 * 88 andalso Memory - Heap < 4000),
    #{by := By2, binary_vheap_bytes := Vheap} = Row(Binary),
    check("binary", {lists:member(binary, By2), Vheap div 1000000}, {true, 50}),
    %% Not what a process says of itself while it answers.
    check("status", [waiting, waiting], [maps:get(status, Row(P)) || P <- [Large, Binary]]),
    #{delta_reductions := Delta} = Spinning = busiest(Agent, 100),
    check("reductions", Delta > 1000),
    Release < 25 orelse check("parent", list_to_binary(call(Target, erlang, pid_to_list, [Busy])), maps:get(parent, Spinning)),
    agent_client:leave(Agent),
    exit(Waiting, kill),
    [call(Target, stop, [P]) || P <- [Large, Binary, Busy, Idle]].

%% The row of the process that spins; its reductions are counted when it is scheduled out.
busiest(Agent, Tries) ->
    Rows = sample_rounds(Agent, 1),
    case [R || #{by := By, current_function := {<<"agent_target">>, <<"spin">>, 0}} = R <- Rows, lists:member(reductions, By)] of
        [Row] -> Row;
        [] when Tries > 0 -> busiest(Agent, Tries - 1)
    end.

sample_rounds(Agent, Rounds) ->
    case value(processes, agent_client:sample(Agent, 1, [procs, processes])) of
        #{round := Round, rows := Rows} when Round >= Rounds -> Rows;
        _ -> sample_rounds(Agent, Rounds)
    end.

%%% Events ----------------------------------------------------------------------------------------------------

%% The rows of the first samples that satisfy.
events(_, _, 0) -> exit(no_such_event);
events(Agent, Satisfies, Tries) ->
    Value = value(events, agent_client:sample(Agent, Tries, [events])),
    case Satisfies(Value) of
        [_ | _] = Found -> Found;
        [] -> receive after 100 -> events(Agent, Satisfies, Tries - 1) end
    end.

of_kind(Kind, Subject) ->
    Id = list_to_binary(rpc:call(node(Subject), erlang, pid_to_list, [Subject])),
    fun(#{rows := Rows}) -> [R || #{kind := K, subject := S} = R <- Rows, K =:= Kind, S =:= Id] end.

long_ones(Target) ->
    Depth = call(Target, depth, []),
    Agent = join(Target),
    #{how := How, rows := [], counts := []} = value(events, agent_client:sample(Agent, 1, [events])),
    check("how", monitor, How),
    Slow = call(Target, hanging, []),
    call(Target, hang, [Slow, Depth]),
    [#{value := Ms, in := {_, _, _}, out := {_, _, _}} | _] = events(Agent, of_kind(long_schedule, Slow), 600),
    check("milliseconds", Ms > 500),
    Large = call(Target, large, [12000000]),
    [#{value := Bytes, call := {<<"agent_target">>, _, _}} | _] = events(Agent, of_kind(large_heap, Large), 100),
    check("bytes", Bytes > 128000000),
    Large ! collect,
    [#{value := Took, heap_bytes := Heap} | _] = events(Agent, of_kind(long_gc, Large), 100),
    check("collection", Took >= 100 andalso Heap > 128000000),
    #{counts := Counts} = value(events, agent_client:sample(Agent, 1, [events])),
    check("counts", [large_heap, long_gc, long_schedule], lists:sort([K || {K, N, _} <- Counts, N > 0])),
    agent_client:leave(Agent),
    [call(Target, stop, [P]) || P <- [Large, Slow]].

busy_node(#target{release = Release, root = Root, beams = Beams} = Target) ->
    #target{node = Busy} = Other = start(integer_to_list(Release), Root, Beams, []),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [events]),
    Senders = call(Target, senders, [1, 4000000, call(Other, sink, [])]),
    %% While the connection is just being made, the VM does not say which one it is.
    [#{node := Node} | _] =
        events(Agent, fun(#{rows := Rows}) ->
                          [R || #{kind := busy_dist_port, node := _, call := {<<"agent_target">>, _, _}} = R <- Rows]
                      end, 100),
    check("node", atom_to_binary(Busy, utf8), Node),
    %% More than what the nodes said when they met, which is all that the VM counts as the port's output.
    #{node := Node} = sent(Agent, Node, 4000000, 100),
    call(Target, stop, [Senders]),
    agent_client:leave(Agent),
    stop(Other).

sent(Agent, Node, Least, Tries) when Tries > 0 ->
    #{rows := Rows} = value(dist, agent_client:sample(Agent, 1, [dist])),
    case [R || #{node := N, out_bytes := Out} = R <- Rows, N =:= Node, Out > Least] of
        [Row] -> Row;
        [] -> receive after 100 -> sent(Agent, Node, Least, Tries - 1) end
    end.

foreign_monitor(Target) ->
    Owner = call(Target, watch_long_schedules, [5000]),
    Foreign = call(Target, erlang, system_monitor, []),
    Agent = join(Target),
    #{how := taken, owner := Bin} = value(events, agent_client:sample(Agent, 1, [events])),
    check("owner", list_to_binary(call(Target, erlang, pid_to_list, [Owner])), Bin),
    check("while sampling", Foreign, call(Target, erlang, system_monitor, [])),
    agent_client:leave(Agent),
    check("after leaving", Foreign, call(Target, erlang, system_monitor, [])),
    call(Target, stop, [Owner]).

later_monitor(Target) ->
    Agent = join(Target),
    agent_client:sample(Agent, 1, [events]),
    Owner = call(Target, watch_long_schedules, [5000]),
    #{how := taken} = value(events, agent_client:sample(Agent, 2, [events])),
    {Owner, _} = call(Target, erlang, system_monitor, []),
    agent_client:leave(Agent),
    {Owner, _} = call(Target, erlang, system_monitor, []),
    call(Target, stop, [Owner]).

flood(#target{release = Release, root = Root, beams = Beams} = Target) ->
    Other = start(integer_to_list(Release), Root, Beams, []),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [events]),
    Senders = call(Target, senders, [400, 200000, call(Other, sink, [])]),
    [_] = events(Agent, fun(#{floods := N}) -> [N || N > 0] end, 200),
    call(Target, stop, [Senders]),
    agent_client:leave(Agent),
    stop(Other).

%%% Requests --------------------------------------------------------------------------------------------------

wrong_beam(#target{node = Node, release = Release} = Target) ->
    case Release of
        25 -> ok;  % loads both
        _ ->
            Wrong = case Release of 23 -> "agent-r25.beam"; _ -> "agent-r23.beam" end,
            Session = agent_client:inject(Node, #{}, Wrong),
            receive {'EXIT', Session, {beamtune, load_failed, Why}} -> check("why", is_binary(Why))
            after 5000 -> exit(not_refused) end,
            check("at once", ?CLEAN, call(Target, state, [agent_client:name()]))
    end.

%% What the agent tells is what anybody reads on this machine in the same files.
host_files(#target{os_pid = OsPid} = Target) ->
    Agent = join(Target),
    Ask = fun(Asks) -> told(Agent, Asks) end,
    Here = fun(File) -> {ok, Bytes} = file:read_file("/proc/" ++ OsPid ++ "/" ++ File), Bytes end,
    [Limits, Boot, Cut, Link, Missing, {count, Files}, {threads, Known, Threads}] =
        Ask([{read, <<"/proc/self/limits">>, 65536}, {read, <<"/proc/sys/kernel/random/boot_id">>, 100},
             {read, <<"/proc/self/limits">>, 10}, {link, <<"/proc/self/ns/cgroup">>},
             {read, <<"/sys/fs/cgroup/beamtune-no-such-group/cpu.max">>, 100}, {count, <<"/proc/self/fd">>}, all_threads]),
    check("limits", {ok, Here("limits")}, Limits),
    check("boot", {ok, <<(element(2, file:read_file("/proc/sys/kernel/random/boot_id")))/binary>>}, Boot),
    check("cut", {cut, binary:part(Here("limits"), 0, 10)}, Cut),
    check("link", {link, list_to_binary(element(2, file:read_link_all("/proc/" ++ OsPid ++ "/ns/cgroup")))}, Link),
    check("missing", {error, enoent}, Missing),
    %% The agent's own file is open just then, or not.
    {ok, Open} = file:list_dir_all("/proc/" ++ OsPid ++ "/fd"),
    check("open files", Files, fun(N) -> abs(N - length(Open)) =< 1 end),
    {ok, Tids} = file:list_dir("/proc/" ++ OsPid ++ "/task"),
    check("threads", lists:sort([list_to_integer(T) || T <- Tids]), Known),
    %% How many depends on how soon the machine gives us a CPU; the others come next.
    check("next", lists:sublist(Known, length(Threads)), [T || {T, _, _, _} <- Threads]),
    wait(fun() ->
             [{threads, Known, More}] = Ask([all_threads]),
             put(met, lists:usort([T || {T, _, _, _} <- More] ++ case get(met) of undefined -> []; Met -> Met end)),
             get(met) =:= Known
         end, 10000),
    [begin
         check("stat", binary:split(Stat, <<" ">>), fun([First, _]) -> First =:= integer_to_binary(Tid) end),
         check("schedstat", binary:split(Waited, <<" ">>, [global]), fun(Fields) -> length(Fields) =:= 3 end),
         check("end of status", binary:match(End, <<"nonvoluntary_ctxt_switches:">>), fun(Found) -> Found =/= nomatch end)
     end || {Tid, Stat, Waited, End} <- Threads],
    check("too many", error, element(2, lists:keyfind(host, 1, items(agent_client:sample(Agent, 2, [{host, #{ask => lists:duplicate(129, threads)}}]))))),
    %% Not more than the bound of all, whatever is asked.
    Bytes = lists:sum([byte_size(B) || {_, B} <- Ask(lists:duplicate(128, {read, <<"/proc/self/smaps_rollup">>, 1 bsl 40})), is_binary(B)]),
    check("bytes", Bytes, fun(N) -> N > 0 andalso N < 1048576 + 262144 end),
    {beamtune, left} = agent_client:leave(Agent).

told(Agent, Asks) ->
    Told = maps:get(told, value(host, agent_client:sample(Agent, 1, [{host, #{ask => Asks}}]))),
    check("as many", length(Asks), length(Told)),
    Told.

refused_files(Target) ->
    Agent = join(Target),
    Paths = ["/etc/passwd", "/proc/self/environ", "/proc/self/cmdline", "/proc/self/mem", "/proc/self/maps", "/proc/self/exe",
             "/proc/self/fd/0", "/proc/self/root/etc/passwd", "/proc/self/cwd", "/proc/kcore", "/proc/kmsg", "/proc/1/stat",
             "/proc/self/../1/environ", "/proc/self/task/1/environ", "/proc/self/stat/", "//proc/self/stat", "/proc/./stat",
             "/sys/fs/cgroup/../../../etc/passwd", "/sys/fs/cgroup/../../../etc/cpu.max", "/sys/fs/cgroup/./cpu.max",
             "/sys/fs/cgroup//cpu.max", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroupx/cpu.max", "/sys/fs/cpu.max",
             "/sys/fs/cgroup/a\0/cpu.max", "/sys/fs/cgroup/a\0/../cpu.max", "/sys/fs/cgroup", "/sys/kernel/debug/cpu.max",
             "sys/fs/cgroup/cpu.max", "cpu.max", "", "/", "/sys/fs/cgroup/" ++ lists:duplicate(5000, $a) ++ "/cpu.max"],
    Asks = [{read, list_to_binary(P), 100} || P <- Paths]
        ++ [{link, <<"/proc/self/exe">>}, {link, <<"/proc/self/cwd">>}, {count, <<"/proc/1/fd">>}, {count, <<"/">>},
            {read, "/proc/stat", 100}, {read, <<"/proc/stat">>, 0}, {read, <<"/proc/stat">>, foo}, {read, '/proc/stat', 1},
            {write, <<"/proc/stat">>, 1}, {threads, 5, 1}, foo, {}, 1, [], <<"/proc/stat">>],
    [check(Ask, {error, refused}, Answer) || {Ask, Answer} <- lists:zip(Asks, told(Agent, Asks))],
    {host, error, _, _, _} = lists:keyfind(host, 1, items(agent_client:sample(Agent, 2, [host]))),
    {host, error, _, _, _} = lists:keyfind(host, 1, items(agent_client:sample(Agent, 3, [{host, #{ask => [foo | bar]}}]))),
    {beamtune, left} = agent_client:leave(Agent).

%% What lies where control groups are, but is not the kernel's.
foreign_files(#target{root = Root} = Target) ->
    Folder = "/sys/fs/cgroup/beamtune-test-" ++ os:getpid(),
    Real = string:trim(Root, trailing, "/") ++ Folder,
    Files = ["cpu.max", "cpu.stat", "memory.max"],
    [Fifo, Text, Sub] = [Real ++ "/" ++ File || File <- Files],
    case os:cmd("mkdir -p " ++ Sub ++ " && mkfifo " ++ Fifo ++ " && echo 1 > " ++ Text) of
        "" ->
            Agent = join(Target),
            try
                Asks = [{read, list_to_binary(Folder ++ "/" ++ File), 100} || File <- Files],
                check("refused", [{error, refused} || _ <- Files], told(Agent, Asks))
            after
                %% A chroot keeps its empty /sys.
                Group = filename:dirname(Real),
                os:cmd("rm -r " ++ Real ++ "; rmdir " ++ Group ++ " " ++ filename:dirname(Group))
            end,
            {beamtune, left} = agent_client:leave(Agent);
        Why -> io:format("skipped, because nothing can be put into /sys/fs/cgroup: ~ts", [Why])
    end.

%% A FIFO in place of a file of the kernel's, which only this node sees: who opens it waits until somebody writes.
hanging_file(#target{release = Release, root = Root, beams = Beams}) ->
    Top = string:trim(Root, trailing, "/"),
    Fifo = Top ++ Beams ++ "/fifo" ++ integer_to_list(erlang:unique_integer([positive])),
    Apart = "unshare -m --propagation private sh -c 'mount --bind " ++ Fifo ++ " " ++ Top ++ "/proc/pressure/io",
    case os:cmd("mkfifo " ++ Fifo ++ " && " ++ Apart ++ "'") of
        "" ->
            Hanging = start(integer_to_list(Release), Root, Beams, [], "exec " ++ Apart ++ " && exec \"$@\"' sh"),
            try
                hanging_file(Hanging, <<"/proc/pressure/io">>, Fifo),
                clean(Hanging),
                check("nothing printed", <<>>, printed(Hanging))
            after stop(Hanging)
            end;
        Why -> io:format("skipped, because no file can be put over one of /proc: ~ts", [Why])
    end.

hanging_file(Target, Path, Fifo) ->
    #{agent := Pid} = Agent = join(Target),
    Ask = {read, Path, 100},
    Boot = {read, <<"/proc/sys/kernel/random/boot_id">>, 100},
    Sample = fun(Seq) ->
                 S = agent_client:sample(Agent, Seq, [counts, {host, #{ask => [Boot, Ask, threads]}}, memory]),
                 [value(I, S) || I <- [counts, memory]],
                 #{begin_ns := Begin, end_ns := End, agent := #{restarts := 0}} = S,
                 check("in time", End - Begin, fun(Ns) -> Ns < 1000000000 end),
                 maps:get(told, value(host, S))
             end,
    %% What had been read before it hung is lost with it.
    check("slow", [{error, late}, {error, late}, {error, late}], Sample(1)),
    receive after 1100 -> ok end,
    check("hangs", [{error, late}, {error, hung}, {error, late}], Sample(2)),
    %% Another client is not held up either, and starts no second read.
    {[{error, late}], {remaining, 1}} = result(apart(fun() ->
                                                         Other = join(Target),
                                                         {told(Other, [Boot]), agent_client:leave(Other)}
                                                     end)),
    %% Somebody writes, and the read returns. It is left out from then on, and all others are read again.
    {ok, Writer} = file:open(Fifo, [write, raw]),
    file:close(Writer),
    wait(fun() -> case Sample(3) of [{ok, _}, {error, hung}, {threads, _, _}] -> true; _ -> false end end, 10000),
    %% The agent leaves also while a file hangs, which is the case for another client now.
    {beamtune, left} = agent_client:leave(Agent),
    Last = join(Target),
    [{error, late}] = told(Last, [Ask]),
    check("no other agent", Pid =/= maps:get(agent, Last)),
    {beamtune, left} = agent_client:leave(Last),
    %% The dead reader lets go of the VM when the file does.
    {ok, Again} = file:open(Fifo, [write, raw]),
    file:close(Again).

thinned_threads(Target) ->
    Agent = join(Target, #{budget_ppm => 100}),
    [{threads, All, [{First, _, _, _}]}] = told(Agent, [threads]),
    check("first", hd(All), First),
    %% Each has its turn.
    Turns = [begin [{threads, All, [{Tid, _, _, _}]}] = told(Agent, [threads]), Tid end || _ <- All],
    check("turns", tl(All) ++ [First], Turns),
    {beamtune, left} = agent_client:leave(Agent).

bad_requests(Target) ->
    #{agent := Pid} = Agent = join(Target),
    Improper = [counts | procs],
    Refused = [{sample, self(), 1, [], #{}}, {sample, self(), 1, lists:duplicate(33, counts), #{}}, {sample, self(), 1, foo, #{}},
               {sample, self(), 1, Improper, #{}}, {sample, self(), foo, [counts], #{}}, {sample, self(), 1, [counts]},
               {nonsense, self()}, {nonsense, self(), 1}],
    [begin Pid ! R, receive {beamtune, bad_request, Why} -> check("why", is_binary(Why)) after 2000 -> exit({not_refused, R}) end end || R <- Refused],
    Stranger = spawn(fun() -> receive after infinity -> ok end end),
    Dropped = [foo, {foo}, {sample, Stranger, 1, [counts], #{}}, {leave, Stranger}, {item, self(), x}, {finished, self(), x},
               {timeout, make_ref(), {item, self()}}, {'EXIT', self(), normal}, <<1>>, [],
               {join, foo, self(), #{}}],
    [Pid ! D || D <- Dropped],
    Sample = agent_client:sample(Agent, 7, [{counts, foo}, {procs, #{top => -5}}, {procs, #{top => foo}}, {1, 2}, "x", 17]),
    check("statuses", [unsupported, ok, ok, unsupported, unsupported, unsupported],
          [case I of {counts, S, _, _, _} -> case S of ok -> unsupported; _ -> S end; I -> element(2, I) end || I <- items(Sample)]),
    agent_client:leave(Agent).

busy(Target) ->
    Idle = call(Target, idle, [29000]),
    #{agent := Pid} = Agent = join(Target, #{budget_ppm => 1000000}),
    Pid ! {sample, self(), 1, [procs, processes], #{}},
    Pid ! {sample, self(), 2, [counts], #{}},
    receive {beamtune, busy, 2, 1} -> ok after 5000 -> exit(not_busy) end,
    receive {beamtune, sample, 1, _} -> ok after 5000 -> exit(no_sample) end,
    agent_client:sample(Agent, 3, [counts]),
    agent_client:leave(Agent),
    call(Target, stop, [Idle]).

secrets(#target{release = Release} = Target) ->
    Variable = "ERL_OTP" ++ integer_to_list(Release) ++ "_FLAGS",
    call(Target, os, putenv, ["ERL_FLAGS", "+sbwt none -setcookie 'S3cr3t 1' -mnesia dir \"S3cr3t x\" -sname foo +A 4 -extra +token S3cr3t"]),
    call(Target, os, putenv, [Variable, "-kernel net_ticktime 20 secret S3cr3t"]),
    call(Target, os, putenv, ["SECRET", "S3cr3t"]),
    Agent = join(Target),
    Facts = value(facts, agent_client:sample(Agent, 1, [facts])),
    Bytes = term_to_binary(Facts),
    [check({"told", Secret}, nomatch, binary:match(Bytes, Secret)) || Secret <- [<<"S3cr3t">>, atom_to_binary(erlang:get_cookie(), utf8)]],
    check("variable", [<<"+sbwt">>, <<"none">>, <<"-sname">>, <<"foo">>, <<"+A">>, <<"4">>],
          proplists:get_value(<<"ERL_FLAGS">>, maps:get(env, Facts))),
    check("kernel", [<<"net_ticktime">>, <<"30">>], proplists:get_value(<<"kernel">>, maps:get(init_args, Facts))),
    check("versioned", [<<"-kernel">>, <<"net_ticktime">>, <<"20">>], proplists:get_value(list_to_binary(Variable), maps:get(env, Facts))),
    agent_client:leave(Agent).

disabled_allocators(Target) ->
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [facts, memory, allocators]),
    {memory, unsupported, _, _, _} = lists:keyfind(memory, 1, items(Sample)),
    check("facts", [<<"binary_alloc">>], maps:get(disabled_allocators, value(facts, Sample))),
    check("dump", [<<"binary_alloc">>], maps:get(disabled, value(allocators, Sample))),
    agent_client:leave(Agent).
