%% @doc Tests of requests and answers: the form of each item, the fixtures, refused requests, and secrets that must not leave the
%% node. Run by agent_test.
-module(agent_protocol_test).
-export([tests/0]).

-include("agent_test.hrl").

-import(agent_nodes, [call/3, call/4, check/2, check/3, items/1, join/1, join/2, node_of/1, value/2, wait/2]).

%% See agent_test:tests/0.
tests() ->
    [{"every_item_has_the_documented_keys", fun every_item/1},
     {"answers_hold_only_binaries_numbers_and_known_atoms", fun only_plain_data/1},
     {"fixtures_match_this_protocol", fun fixtures/1},
     {"a_wrong_beam_changes_nothing", fun wrong_beam/1, [], prints},
     {"bad_requests_are_refused", fun bad_requests/1},
     {"a_second_sample_at_the_same_time_is_refused_as_busy", fun busy/1},
     {"secrets_do_not_leave_the_node", fun secrets/1,
      ["-rabbit", "default_pass", "\"S3cr3t\"", "-kernel", "net_ticktime", "30", "my_key", "\"S3cr3t\"", "-user_flag", "S3cr3t",
       "-extra", "--password=S3cr3t"]},
     {"bytes_of_timers_are_reported", fun fixed_kinds/1},
     {"kinds_of_fix_alloc_are_missing_if_it_is_disabled", fun no_fixed_kinds/1, ["+MFe", "false"]},
     {"disabled_allocators_are_reported", fun disabled_allocators/1, ["+MBe", "false"]},
     {"settings_of_log_handlers_are_read", fun log_handlers/1}].

%%% Answers ---------------------------------------------------------------------------------------------------

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
    check("end after begin", Begin < End),
    has_keys(agent, Own),
    Facts = value(facts, Sample),
    check("release", Target#target.release, binary_to_integer(maps:get(otp_release, Facts))),
    check("applications", true, lists:keymember(<<"kernel">>, 1, maps:get(applications, Facts))),
    check("features", Target#target.release >= 25, lists:member(<<"parent">>, maps:get(features, Facts))),
    Threads = maps:get(threads, value(msacc, Sample)),
    check("threads", maps:get(schedulers, Facts), length([T || {scheduler, _, _} = T <- Threads])),
    check("rows of all schedulers", maps:get(schedulers, Facts) + maps:get(dirty_cpu_schedulers, Facts) + maps:get(dirty_io_schedulers, Facts),
          length(maps:get(rows, value(scheduler_wall_time, Sample)))),
    check("all processes", value(counts, Sample), fun(#{processes := P}) -> abs(P - maps:get(total, value(procs, Sample))) < 5 end),
    {beamtune, left} = agent_client:leave(Agent).

%% The Rust client is tested with the fixtures, so these have to match the agent.
fixtures(#target{release = Release} = Target) ->
    Read = fun(Name) ->
               {ok, Bytes} = file:read_file(filename:join(os:getenv("AGENT_FIXTURES"), Name ++ ".etf")),
               binary_to_term(Bytes)
           end,
    Answer = fun(Name) -> Read(lists:concat(["r", Release, "-", Name])) end,
    [{'Beam', _}, {'Client', _}, {'Name', _}, {'Options', Options}] = Read("request-bindings"),
    #{agent := Pid, joined := Joined} = Agent = join(Target, Options),
    {beamtune, joined, JoinedFixture} = Answer("joined"),
    check("joined", lists:sort(maps:keys(Joined)), lists:sort(maps:keys(JoinedFixture))),
    agent_client:sample(Agent, 1, [procs]),
    [begin
         Request = Read("request-" ++ Name),
         Items = answered(Pid, Request, 30),
         {beamtune, sample, _, #{items := Recorded} = Sample} = Answer(Name),
         has_keys(sample, Sample),
         has_keys(agent, maps:get(agent, Sample)),
         check("items", [{N, S} || {N, S, _, _, _} <- Items], [{N, S} || {N, S, _, _, _} <- Recorded]),
         [has_keys(N, V) || {N, ok, _, _, V} <- Items ++ Recorded],
         [check({"keys of", N}, lists:sort(maps:keys(A)), lists:sort(maps:keys(B)))
          || {{N, ok, _, _, A}, {N, ok, _, _, B}} <- lists:zip(Items, Recorded), N =/= ports]
     end || Name <- ["sample-hot", "sample-slow", "sample-host", "sample-asked"]],
    {beamtune, sample, 1, #{items := [{facts, ok, _, _, Facts}, {procs, ok, _, _, First}, {atoms, ok, _, _, _}, {no_such_item, unsupported, _, _, _}]}} =
        Answer("sample-facts"),
    has_keys(facts, Facts),
    check("first round", false, maps:is_key(delta_reductions, First)),
    {beamtune, bad_request, <<_/binary>>} = Answer("bad-request"),
    {beamtune, left, #{remaining := 0}} = Answer("left"),
    {beamtune, left} = Answer("session-exit"),
    Pid ! setelement(2, Read("request-renew"), self()),
    Pid ! setelement(2, Read("request-leave"), self()),
    receive {beamtune, left, #{remaining := 0}} -> ok after 5000 -> exit(no_answer) end.

%% Returns the answer to a request. Retries if code cannot be listed, since a scheduler may not answer in time on a busy host.
answered(Pid, Request, Tries) ->
    Seq = element(3, Request),
    Pid ! setelement(2, Request, self()),
    receive
        {beamtune, sample, Seq, #{items := Items}} ->
            case [Why || {code_memory, error, _, _, Why} <- Items, binary:match(Why, <<"does_not_answer">>) =/= nomatch] of
                [_] when Tries > 0 -> answered(Pid, Request, Tries - 1);
                [] -> Items
            end
    after 60000 -> exit({no_answer, Request})
    end.

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
keys(processes) -> [binary_vheap_bytes, at_work, rows | keys(part)];
keys(spawns) -> [new, sampled, given, calls, again];
keys(atoms) -> [new, sampled, beginnings];
keys(ran) -> [sampled];
keys(weigh) -> [sampled];
keys(crashes) -> [monitored, supervisors, lost, rows];
keys(messages) -> [active, sampled, us, off_heap, sizes, rows];
keys(stands) -> [total, sampled, waiting, rows, waited_for];
keys(ets) -> [memory_bytes, unread, rows, owners | keys(part)];
keys(table_growth) -> [followed, rows, ended];
keys(ports) -> [programs, in_bytes, out_bytes, queue_bytes, kinds, owners, rows, sockets, ended | keys(part)];
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
%% With an emulator that does not count locks.
keys(locks) -> [told];
keys(allocators) -> [disabled, instances, foreign, fixed, mseg, mmap];
keys(part) -> [total, scanned, round, part, last].

only_plain_data(Target) ->
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [facts | ?HOT] ++ ?SLOW),
    Main = os:getenv("AGENT_SOURCE"),
    Parts = filelib:wildcard(filename:join(filename:dirname(Main), "parts/*.hrl")),
    Tokens = fun(File) ->
                 {ok, Source} = file:read_file(File),
                 {ok, Found, _} = erl_scan:string(unicode:characters_to_list(Source)),
                 Found
             end,
    %% The allowed atoms: those in the agent's source, and those of the VM, such as states, thread types and statuses.
    Known = sets:from_list([A || File <- [Main | Parts], {atom, _, A} <- Tokens(File)]
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

secrets(#target{release = Release} = Target) ->
    Variable = "ERL_OTP" ++ integer_to_list(Release) ++ "_FLAGS",
    call(Target, os, putenv, ["ERL_FLAGS", "+sbwt none -setcookie 'S3cr3t 1' -mnesia dir \"S3cr3t x\" -sname foo +A 4 -extra +token S3cr3t"]),
    call(Target, os, putenv, [Variable, "-kernel net_ticktime 20 secret S3cr3t"]),
    call(Target, os, putenv, ["SECRET", "S3cr3t"]),
    Agent = join(Target),
    Facts = value(facts, agent_client:sample(Agent, 1, [facts])),
    Bytes = term_to_binary(Facts),
    [check({"leaked", Secret}, nomatch, binary:match(Bytes, Secret)) || Secret <- [<<"S3cr3t">>, atom_to_binary(erlang:get_cookie(), utf8)]],
    check("variable", [<<"+sbwt">>, <<"none">>, <<"-sname">>, <<"foo">>, <<"+A">>, <<"4">>],
          proplists:get_value(<<"ERL_FLAGS">>, maps:get(env, Facts))),
    check("kernel", [<<"net_ticktime">>, <<"30">>], proplists:get_value(<<"kernel">>, maps:get(init_args, Facts))),
    check("versioned", [<<"-kernel">>, <<"net_ticktime">>, <<"20">>], proplists:get_value(list_to_binary(Variable), maps:get(env, Facts))),
    agent_client:leave(Agent).

log_handlers(Target) ->
    Default = {<<"logger_std_h_default">>, <<"default">>, 10, 200, 1000, true, 500},
    Raised = #{sync_mode_qlen => 3000, drop_mode_qlen => 3001, flush_qlen => 9000, burst_limit_enable => false},
    Agent = join(Target),
    Read = fun() -> lists:keyfind(<<"logger_std_h_default">>, 1, maps:get(log_handlers, value(facts, agent_client:sample(Agent, 1, [facts])))) end,
    check("defaults", Default, Read()),
    ok = call(Target, logger, update_handler_config, [default, config, Raised]),
    check("raised", {<<"logger_std_h_default">>, <<"default">>, 3000, 3001, 9000, false, 500}, Read()),
    ok = call(Target, logger, remove_handler, [default]),
    check("none", false, Read()),
    agent_client:leave(Agent).

disabled_allocators(Target) ->
    Agent = join(Target),
    Sample = agent_client:sample(Agent, 1, [facts, memory, allocators]),
    {memory, unsupported, _, _, _} = lists:keyfind(memory, 1, items(Sample)),
    check("facts", [<<"binary_alloc">>], maps:get(disabled_allocators, value(facts, Sample))),
    check("dump", [<<"binary_alloc">>], maps:get(disabled, value(allocators, Sample))),
    agent_client:leave(Agent).

fixed_kinds(Target) ->
    Agent = join(Target),
    Bytes = fun(Seq, Kind) ->
                #{fixed := Fixed} = value(allocators, agent_client:sample(Agent, Seq, [allocators])),
                proplists:get_value(Kind, Fixed)
            end,
    Waiting = spawn(node_of(Target), timer, sleep, [infinity]),
    Before = Bytes(1, <<"bif_timer">>),
    [call(Target, erlang, send_after, [600000, Waiting, none]) || _ <- lists:seq(1, 200)],
    %% 152 bytes each, and possibly the timers of other calls at the same time.
    check("timers", Bytes(2, <<"bif_timer">>) - Before, fun(More) -> More >= 200 * 150 andalso More =< 220 * 160 end),
    check("monitors and links", [is_integer(Bytes(3, Kind)) || Kind <- [<<"monitor">>, <<"link">>, <<"proc">>]], [true, true, true]),
    exit(Waiting, kill),
    %% The timers are cancelled when their receiver ends.
    wait(fun() -> Bytes(erlang:unique_integer([positive]), <<"bif_timer">>) - Before < 20 * 160 end, 5000),
    agent_client:leave(Agent).

no_fixed_kinds(Target) ->
    Agent = join(Target),
    check("none", [], maps:get(fixed, value(allocators, agent_client:sample(Agent, 1, [allocators])))),
    agent_client:leave(Agent).

%%% Requests --------------------------------------------------------------------------------------------------

wrong_beam(#target{node = Node, release = Release} = Target) ->
    case Release of
        25 -> ok;  % loads both
        _ ->
            Wrong = case Release of 23 -> "agent-r25.beam"; _ -> "agent-r23.beam" end,
            Session = agent_client:inject(Node, #{}, Wrong),
            receive {'EXIT', Session, {beamtune, load_failed, Why}} -> check("reason", is_binary(Why))
            after 5000 -> exit(not_refused) end,
            check("clean immediately", ?CLEAN, call(Target, state, [agent_client:name()]))
    end.

bad_requests(Target) ->
    #{agent := Pid} = Agent = join(Target),
    Improper = [counts | procs],
    Refused = [{sample, self(), 1, [], #{}}, {sample, self(), 1, lists:duplicate(33, counts), #{}}, {sample, self(), 1, foo, #{}},
               {sample, self(), 1, Improper, #{}}, {sample, self(), foo, [counts], #{}}, {sample, self(), 1, [counts]},
               {nonsense, self()}, {nonsense, self(), 1}, {item, self(), x}],
    [begin
         Pid ! R,
         receive {beamtune, bad_request, Why} -> check("reason", is_binary(Why)) after 2000 -> exit({not_refused, R}) end
     end || R <- Refused],
    Stranger = spawn(fun() -> receive after infinity -> ok end end),
    Dropped = [foo, {foo}, {sample, Stranger, 1, [counts], #{}}, {leave, Stranger}, {finished, self(), x},
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
