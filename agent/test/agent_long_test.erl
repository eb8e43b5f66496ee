%% @doc Tests of the items that are read only on request. Run by agent_test.
-module(agent_long_test).
-export([tests/0]).

-import(agent_nodes, [call/3, call/4, check/2, check/3, clean/1, items/1, join/1, join/2, value/2, wait/2, agree/4]).

%% See agent_test:tests/0.
tests() ->
    [{"sums_of_carriers_equal_those_of_instrument", fun carriers_as_instrument/1},
     {"every_carrier_is_reported_or_skipped", fun carriers_add_up/1},
     {"an_estimate_walks_few_blocks", fun carriers_estimate/1, ["+S", "2"]},
     {"only_carriers_of_the_requested_allocators_are_walked", fun carriers_of_some/1},
     {"walking_carriers_does_not_change_the_vms_counts", fun carriers_keep_counts/1, ["+S", "2"]},
     {"a_wrong_count_of_pooled_carriers_is_negative", fun carriers_wrong_count/1, ["+S", "2"]},
     {"a_scheduler_that_hangs_ends_the_walk_at_its_deadline", fun carriers_of_hanging/1, ["+S", "2"]},
     {"allocations_equal_those_of_instrument", fun allocations_as_instrument/1},
     {"with_tags_for_all_allocators_all_are_reported", fun allocations_of_all/1, ["+Muatags", "true"]},
     {"allocations_are_unsupported_without_tags", fun no_allocations/1, ["+Muatags", "false"]},
     {"sums_of_code_equal_the_vms_counts", fun code/1},
     {"code_is_not_listed_while_a_scheduler_hangs", fun code_while_hanging/1, ["+S", "2"]},
     {"holders_of_binaries_are_found_and_shared_binaries_counted_once", fun holders/1},
     {"holders_and_collect_work_with_very_many_processes", fun with_many_processes/1},
     {"holders_can_be_selected_by_pid_or_name", fun named_holders/1},
     {"a_holder_that_hangs_does_not_affect_others", fun hanging_holder/1},
     {"only_the_selected_processes_are_collected", fun collect_named/1},
     {"a_sample_of_all_processes_is_collected", fun collect_sample/1},
     {"collect_stops_at_its_limits", fun collect_limits/1},
     {"collect_stops_when_its_client_leaves", fun collect_and_leave/1},
     {"collect_stops_when_the_lease_expires", fun collect_without_client/1},
     {"leaving_during_a_walk_leaves_nothing", fun leaving_carriers/1, ["+S", "2"]}].

%%% Carriers --------------------------------------------------------------------------------------------------

%% The allocators whose carriers change least while the node is idle.
-define(QUIET, [binary_alloc, ets_alloc, literal_alloc, driver_alloc, fix_alloc]).

carriers_as_instrument(Target) ->
    call(Target, binaries, [3000000]),
    call(Target, unnamed_tables, [300]),
    call(Target, fragmented, [20, 500, 700, 60]),
    Agent = join(Target),
    Walk = {carriers, #{allocators => [atom_to_binary(A, utf8) || A <- ?QUIET], pools => true}},
    By = fun() ->
             {ok, {512, Carriers}} = call(Target, instrument, carriers, [#{allocator_types => ?QUIET}]),
             lists:sort(Carriers)
         end,
    By(),
    agree("rows", By, fun() -> answered_walk(Agent, 1, Walk) end,
          fun(Before, #{rows := Rows, skipped := [], left_out := {0, 0}, walked := #{carriers := Count, bytes := Bytes}}) ->
              {{lists:sort(maps:to_list(summed(Before))), length(Before), lists:sum([element(3, C) || C <- Before])},
               {lists:sort([as_summed(R) || R <- Rows]), Count, Bytes}}
          end),
    agent_client:leave(Agent).

%% Sums up the carriers that instrument returns, as the agent should do.
summed(Carriers) ->
    lists:foldl(fun({Allocator, InPool, Size, Unscanned, Blocks, Free}, All) ->
                    Bytes = lists:sum([S || {_, _, S} <- Blocks]),
                    Zeros = list_to_tuple([0 || _ <- tuple_to_list(Free)]),
                    Single = Free =:= Zeros andalso Bytes =:= Size,
                    Key = {atom_to_binary(Allocator, utf8), InPool, Single, floor(math:log2(Size)), Bytes * 10 div Size},
                    {N, B, U, Of, F} = maps:get(Key, All, {0, 0, 0, [], Zeros}),
                    Sums = [{A, C + C0, S + S0} || {A, C, S} <- Blocks, {A0, C0, S0} <- Of, A =:= A0]
                        ++ [Only || {A, _, _} = Only <- Blocks, not lists:keymember(A, 1, Of)]
                        ++ [Only || {A, _, _} = Only <- Of, not lists:keymember(A, 1, Blocks)],
                    Frees = lists:zipwith(fun(X, Y) -> X + Y end, tuple_to_list(F), tuple_to_list(Free)),
                    All#{Key => {N + 1, B + Size, U + Unscanned, lists:sort(Sums), list_to_tuple(Frees)}}
                end, #{}, Carriers).

as_summed({Allocator, InPool, Single, Log2, Tenths, Count, Bytes, Unscanned, Blocks, Free}) ->
    {{Allocator, InPool, Single, Log2, Tenths},
     {Count, Bytes, Unscanned, lists:sort([{binary_to_atom(Of, utf8), C, S} || {Of, C, S} <- Blocks]), list_to_tuple(Free)}}.

%% Compares the carriers with the VM's counters, which change a little in the meantime.
carriers_add_up(Target) ->
    call(Target, fragmented, [50, 2000, 900, 70]),
    Agent = join(Target),
    [begin
         Sample = answered_walk(Agent, Seq, [allocators, {carriers, Params}], 10),
         #{instances := Instances} = value(allocators, Sample),
         Counted = lists:sum([element(4, Set) || {_, _, Mbcs, Pool, Sbcs, _} <- Instances, Set <- [Mbcs, Pool, Sbcs]]),
         #{rows := Rows, skipped := Skipped, walked := #{bytes := Walked}} = value(carriers, Sample),
         check("rows add up to the walked bytes", Walked, lists:sum([element(7, R) || R <- Rows])),
         Reported = Walked + lists:sum([element(5, S) || S <- Skipped]),
         check({"bytes", Reported, Counted}, abs(Reported - Counted) =< Counted div 5),
         check("reasons", [], [S || S <- Skipped, not lists:member(element(3, S), [pool, limit])])
     end || {Seq, Params} <- [{1, #{}}, {2, #{limit_ms => 50}}, {3, #{pools => true}}]],
    agent_client:leave(Agent).

%% Returns a walk in which each instance has answered in time. On a busy host, an instance may be late.
answered_walk(Agent, Seq, {Item, _} = Walk) -> value(Item, answered_walk(Agent, Seq, [Walk], 10)).

%% The same, for a walk that is the last of several items.
answered_walk(Agent, Seq, Items, Tries) ->
    Sample = agent_client:sample(Agent, Seq, Items),
    {Item, _} = lists:last(Items),
    #{skipped := Skipped} = value(Item, Sample),
    case [late || {_, _, no_answer, _, _, _} <- Skipped] of
        [late | _] when Tries > 0 -> answered_walk(Agent, Seq, Items, Tries - 1);
        _ -> Sample
    end.

carriers_estimate(Target) ->
    call(Target, fragmented, [100, 5000, 1000, 0]),
    Agent = join(Target),
    %% On a busy host, the instance on which the speed is measured may be late.
    wait(fun() ->
             put(estimated, items(agent_client:sample(Agent, 1, [{carriers, #{estimate => true}}]))),
             [{carriers, ok, _, Took, #{estimate := #{measured := Measured}}}] = get(estimated),
             Measured =/= #{} andalso Took < 500000
         end, 20000),
    [{carriers, ok, _, Us, Value}] = get(estimated),
    check("nothing but the estimate", [estimate], maps:keys(Value)),
    #{estimate := #{carriers := Carriers, bytes := Bytes, blocks := Blocks, us := Estimate, hold_us := Hold, skipped := Skipped,
                    measured := #{blocks := Visited, us := _}}} = Value,
    check("all blocks", Blocks + lists:sum([element(6, S) || S <- Skipped]), fun(B) -> B > 400000 end),
    check("bytes", Bytes + lists:sum([element(5, S) || S <- Skipped]), fun(B) -> B > 400000000 end),
    check({"few blocks visited", Visited, Us}, Visited =< 20000),
    check({"longest time on a scheduler, and total", Hold, Estimate}, Hold > 0 andalso Hold =< Estimate),
    #{walked := #{carriers := Walked}} = answered_walk(Agent, 2, {carriers, #{}}),
    check({"carriers as in the walk", Walked, Carriers}, abs(Walked - Carriers) =< 5 + Carriers div 5),
    agent_client:leave(Agent).

carriers_of_some(Target) ->
    Agent = join(Target),
    Walk = fun(Names) -> answered_walk(Agent, 1, {carriers, #{allocators => Names}}) end,
    #{rows := Rows, walked := #{instances := 1}} = Walk([<<"literal_alloc">>]),
    check("allocators", [<<"literal_alloc">>], lists:usort([element(1, R) || R <- Rows])),
    #{rows := [], walked := #{instances := 0}} = Walk([<<"no_such_alloc">>, 17]),
    [{carriers, error, _, _, Why}] =
        maps:get(items, agent_client:sample(Agent, 2, [{carriers, #{allocators => ets_alloc}}])),
    check("not a list", is_binary(Why)),
    agent_client:leave(Agent).

%% A walk must not change the VM's counts. Before ERTS 15.1 it would, so instances with large pools are skipped there.
carriers_keep_counts(Target) ->
    call(Target, fragmented, [100, 4000, 1000, 75]),
    Agent = join(Target),
    Pools = fun() -> [C || {_, C, _} <- call(Target, pools, [])] end,
    wait(fun() -> lists:max(Pools()) > 10 end, 10000),
    Values = [answered_walk(Agent, Seq, {carriers, #{}}) || Seq <- lists:seq(1, 5)],
    Old = call(Target, erlang, system_info, [version]) < "15.1",
    Why = [W || #{skipped := Skipped} <- Values, {_, _, W, _, _, _} <- Skipped],
    check({"skipped", Old}, lists:usort(Why), case Old of true -> [pool]; false -> [] end),
    %% The VM's counts must equal the walked carriers.
    agree("pooled carriers", fun() -> call(Target, pools, []) end,
          fun() -> value(carriers, agent_client:sample(Agent, 6, [carriers])) end,
          fun(Now, #{rows := Rows, skipped := Skipped}) ->
              SkippedPools = [P || {A, I, _, _, _, _} <- Skipped, {{A1, I1}, _, _} = P <- Now, A =:= A1, I =:= I1],
              {lists:sum([C || {_, C, _} <- Now -- SkippedPools]), lists:sum([element(6, R) || R <- Rows, element(2, R)])}
          end),
    agent_client:leave(Agent).

%% Walks pools on request, which makes their counts wrong before ERTS 15.1 and has no effect since.
carriers_wrong_count(Target) ->
    call(Target, fragmented, [100, 4000, 1000, 75]),
    Agent = join(Target),
    wait(fun() -> lists:max([C || {_, C, _} <- call(Target, pools, [])]) > 10 end, 10000),
    [value(carriers, agent_client:sample(Agent, Seq, [{carriers, #{pools => true}}])) || Seq <- lists:seq(1, 9)],
    Reported = fun(Instances) -> [element(3, Pool) || {_, _, _, Pool, _, _} <- Instances] end,
    {_, #{instances := All}} =
        agree("negative counts", fun() -> [C || {_, C, _} <- call(Target, pools, [])] end,
              fun() -> value(allocators, agent_client:sample(Agent, 10, [allocators])) end,
              fun(Counts, #{instances := Instances}) ->
                  {length([C || C <- Counts, C > 1 bsl 63]), length([C || C <- Reported(Instances), C < 0])}
              end),
    check({"all counts fit into 64 bits with a sign", Reported(All)}, lists:max(Reported(All)) < 1 bsl 63),
    agent_client:leave(Agent).

carriers_of_hanging(Target) ->
    call(Target, fragmented, [20, 1000, 700, 0]),
    Hanging = call(Target, hanging, []),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs]),
    Depth = call(Target, depth, []) + 1,
    %% The busy processes keep the other scheduler awake, so that it takes over the work of the scheduler that hangs.
    Busy = call(Target, busy, [4]),
    wait(fun() -> lists:min(lists:droplast(call(Target, erlang, statistics, [active_tasks]))) > 1 end, 5000),
    call(Target, hang, [Hanging, Depth]),
    #{items := [{carriers, timeout, _, _, #{}}], agent := #{restarts := 1}, end_ns := AnsweredNs} =
        agent_client:sample(Agent, 2, [{carriers, #{limit_ms => 100}}]),
    call(Target, stop, [Busy]),
    wait(fun() -> call(Target, hung_until, [Hanging]) =/= undefined end, 60000),
    check("answered while it still hung", call(Target, hung_until, [Hanging]), fun(Until) -> AnsweredNs < Until end),
    call(Target, stop, [Hanging]),
    #{skipped := []} = answered_walk(Agent, 3, {carriers, #{pools => true}}),
    agent_client:leave(Agent).

%%% Allocations -----------------------------------------------------------------------------------------------

allocations_as_instrument(Target) ->
    call(Target, binaries, [3000000]),
    call(Target, fragmented, [20, 500, 700, 60]),
    Agent = join(Target),
    By = fun() ->
             {ok, {128, Unscanned, Origins}} =
                 call(Target, instrument, allocations, [#{histogram_width => 24}]),
             {Unscanned, lists:sort([{bin(O), bin(T), lists:sum(tuple_to_list(H)), tuple_to_list(H)}
                                     || {O, Types} <- maps:to_list(Origins), {T, H} <- maps:to_list(Types)])}
         end,
    By(),
    {_, #{rows := Rows, tagged := Tagged}} =
        agree("as from instrument", By, fun() -> answered_walk(Agent, 1, {allocations, #{pools => true}}) end,
              fun(Before, #{rows := R, skipped := [], unscanned_bytes := Unscanned, left_out := {0, 0, 0}}) ->
                  {Before, {Unscanned, lists:sort([{O, T, N, H} || {O, T, N, _, H} <- R])}}
              end),
    check("tagged", [<<"binary_alloc">>, <<"driver_alloc">>], Tagged),
    check("most bytes first", Rows, lists:reverse(lists:keysort(4, lists:reverse(Rows)))),
    %% The sum must be approximately the size of all binaries.
    #{rows := [{_, _, _, Bytes, _} | _]} = answered_walk(Agent, 2, {allocations, #{top => 1, pools => true}}),
    Binaries = call(Target, erlang, memory, [binary]),
    check({"bytes", Bytes, Binaries}, Bytes > Binaries div 2 andalso Bytes < 2 * Binaries),
    agent_client:leave(Agent).

bin(Atom) -> atom_to_binary(Atom, utf8).

allocations_of_all(Target) ->
    Agent = join(Target),
    #{rows := Rows, tagged := Tagged, left_out := {More, _, _}} =
        answered_walk(Agent, 1, {allocations, #{pools => true}}),
    check({"tagged", Tagged}, lists:member(<<"eheap_alloc">>, Tagged) andalso lists:member(<<"ets_alloc">>, Tagged)),
    check({"heaps", Rows}, lists:any(fun({O, T, _, _, _}) -> {O, T} =:= {<<"system">>, <<"heap">>} end, Rows)),
    #{rows := Three, left_out := {Rest, Blocks, Bytes}} =
        answered_walk(Agent, 2, {allocations, #{top => 3, pools => true}}),
    check("three rows", 3, length(Three)),
    check({"sums of all others", Rest, More}, abs(Rest - length(Rows) - More + 3) < 5 andalso Blocks > Rest andalso Bytes > Blocks),
    agent_client:leave(Agent).

no_allocations(Target) ->
    Agent = join(Target),
    [{allocations, unsupported, _, _, #{}}] = maps:get(items, agent_client:sample(Agent, 1, [allocations])),
    agent_client:leave(Agent).

%%% Code ------------------------------------------------------------------------------------------------------

%% Retries, since a scheduler may not answer in time on a busy host.
answered_code(Agent, Seq, Params) -> answered_code(Agent, Seq, Params, 30).

answered_code(Agent, Seq, Params, Tries) ->
    case items(agent_client:sample(Agent, Seq, [{code_memory, Params}])) of
        [{code_memory, ok, _, _, Value}] -> Value;
        [{code_memory, error, _, _, Why}] when Tries > 0 ->
            check({"reason", Why}, binary:match(Why, <<"does_not_answer">>) =/= nomatch),
            answered_code(Agent, Seq, Params, Tries - 1)
    end.

code(Target) ->
    Agent = join(Target),
    %% The first line of the VM's answer contains the total.
    Loaded = fun() ->
                 [First | _] = binary:split(call(Target, erlang, system_info, [loaded]), <<"\n">>),
                 {First, length(call(Target, erlang, loaded, [])), call(Target, persistent_term, info, [])}
             end,
    {_, #{rows := Rows, modules := Modules, bytes := Bytes, old_bytes := Old, unread := 0, applications := Apps,
          stopped_us := Stopped} = Before} =
        agree("bytes, modules and persistent terms", Loaded, fun() -> answered_code(Agent, 1, #{top => 200}) end,
              fun(Vm, #{bytes := B, modules := M, persistent_terms := Terms, persistent_term_bytes := TermBytes}) ->
                  {Vm, {<<"Current code: ", (integer_to_binary(B))/binary>>, M, #{count => Terms, memory => TermBytes}}}
              end),
    check("sums", {Apps, Modules, Bytes, Old},
          {length(Rows), lists:sum([M || {_, M, _, _} <- Rows]), lists:sum([B || {_, _, B, _} <- Rows]),
           lists:sum([O || {_, _, _, O} <- Rows])}),
    check({"known applications", Rows}, [] =:= [<<"kernel">>, <<"stdlib">>, <<"erts">>] -- [A || {A, _, _, _} <- Rows]),
    check("most bytes first", Rows, lists:reverse(lists:keysort(3, lists:reverse(Rows)))),
    check({"blocked briefly", Stopped}, Stopped < 1000000),
    More = call(Target, modules, [100, 50]),
    After = answered_code(Agent, 2, #{top => 200}),
    #{unread := 0, old_bytes := OldNow} = After,
    Unknown = fun(#{rows := Found}) ->
                  case lists:keyfind(<<>>, 1, Found) of {_, M, B, _} -> {M, B}; false -> {0, 0} end
              end,
    {{M0, B0}, {M1, B1}} = {Unknown(Before), Unknown(After)},
    %% Creating the modules may have loaded the compiler, which belongs to an application.
    check({"modules without an application", M0, M1, More}, M1 - M0 >= More),
    check({"bytes of these", B0, B1}, B1 - B0 > More * 500),
    check({"old code", Old, OldNow}, OldNow > Old),
    #{rows := [Largest], applications := Same} = answered_code(Agent, 3, #{top => 1}),
    check("the largest", {hd(maps:get(rows, After)), maps:get(applications, After)}, {Largest, Same}),
    agent_client:leave(Agent).

code_while_hanging(Target) ->
    Hanging = call(Target, hanging, []),
    Depth = call(Target, depth, []),
    Busy = call(Target, busy, [4]),
    wait(fun() -> lists:min(lists:droplast(call(Target, erlang, statistics, [active_tasks]))) > 1 end, 5000),
    Agent = join(Target),
    answered_code(Agent, 1, #{}),
    Hung = call(Target, erlang, monotonic_time, [nanosecond]),
    call(Target, hang, [Hanging, Depth]),
    #{agent := Pid} = Agent,
    Pid ! {sample, self(), 2, [code_memory], #{}},
    %% Calls of other processes are not delayed.
    Longest = lists:max([element(1, timer:tc(fun() -> call(Target, erlang, node, []) end)) || _ <- lists:seq(1, 100)]),
    %% This may take long: the timers of the scheduler that hangs do not run.
    receive
        {beamtune, sample, 2, #{items := [{code_memory, error, _, _, Why}]}} ->
            check({"reason", Why}, binary:match(Why, <<"does_not_answer">>) =/= nomatch);
        {beamtune, sample, 2, #{items := [{code_memory, timeout, _, _, #{}}]}} -> ok
    after 60000 -> exit(no_answer)
    end,
    call(Target, stop, [Busy]),
    wait(fun() -> call(Target, hung_until, [Hanging]) =/= undefined end, 60000),
    HungUs = (call(Target, hung_until, [Hanging]) - Hung) div 1000,
    check({"no call waited for it", Longest, HungUs}, Longest * 2 < HungUs),
    call(Target, stop, [Hanging]),
    wait(fun() -> [{code_memory, S, _, _, _}] = maps:get(items, agent_client:sample(Agent, 3, [code_memory])), S =:= ok end, 30000),
    agent_client:leave(Agent).

%%% Holders of binaries, and garbage collection ---------------------------------------------------------------

holders(Target) ->
    {Pid, Pids} = call(Target, sharing, [20, 10, 50000]),
    Agent = join(Target),
    #{rows := Rows, total := Total, scanned := Scanned, binaries := Binaries, bytes := Bytes, complete := true} =
        value(holders, agent_client:sample(Agent, 1, [{holders, #{top => 15}}])),
    check("all were scanned", Total, Scanned),
    check("fifteen rows", 15, length(Rows)),
    Ids = [list_to_binary(erlang:pid_to_list(P)) || P <- Pids],
    Known = [list_to_binary(call(Target, erlang, pid_to_list, [P])) || P <- [Pid | Pids]],
    check("only holders", [], [P || #{pid := P} <- Rows] -- Known),
    check("pids as the target prints them", Ids -- Known, fun(L) -> L =/= [] end),
    Workers = [R || #{binaries := 20} = R <- Rows],
    check("workers with their own binaries", length(Workers), fun(N) -> N >= 14 end),
    [check("worker", {ok, 20, 20, 1000000, 10, 500000},
           {maps:get(told, R), maps:get(references, R), maps:get(binaries, R), maps:get(bytes, R), maps:get(alone, R),
            maps:get(alone_bytes, R)}) || R <- Workers],
    [check({"a small heap with large binaries", R}, H < 100000 andalso V >= 1000000)
     || #{heap_bytes := H, binary_vheap_bytes := V} = R <- Workers],
    %% Shared binaries are counted once.
    check("totals", {10 + 10 * length(Workers), 500000 * (1 + length(Workers))}, {Binaries, Bytes}),
    agent_client:leave(Agent).

%% There are enough processes that a separate process builds their list.
with_many_processes(Target) ->
    Idle = call(Target, idle, [40000]),
    {_, Pids} = call(Target, sharing, [3, 5, 100000]),
    Agent = join(Target),
    #{rows := Rows, total := Total, scanned := Scanned} = value(holders, agent_client:sample(Agent, 1, [{holders, #{top => 3}}])),
    check({"all were scanned", Total, Scanned}, Total > 40000 andalso Scanned =:= Total),
    Known = [list_to_binary(call(Target, erlang, pid_to_list, [P])) || P <- Pids],
    check({"the holders", Rows}, length([P || #{pid := P} <- Rows, lists:member(P, Known)]) >= 2),
    #{processes := All, chosen := Chosen, collected := Collected, stopped := done} =
        value(collect, agent_client:sample(Agent, 2, [{collect, (no_latency_limit())#{share => 5, pause_ms => 1, batch => 100}}])),
    check({"five of a thousand", All, Chosen, Collected}, All > 40000 andalso abs(Chosen - All div 200) < All div 400
                                                             andalso Collected > Chosen - 10),
    %% No list remains.
    agent_client:sample(Agent, 3, [counts]),
    #{agent := Pid} = Agent,
    {links, [Collector]} = call(Target, erlang, process_info, [Pid, links]),
    {links, Links} = call(Target, erlang, process_info, [Collector, links]),
    check("the collector is linked to the agent and its reader only", 2, length(Links)),
    agent_client:leave(Agent),
    call(Target, stop, [Idle]),
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 20000).

named_holders(Target) ->
    {_, [One, Other | _]} = call(Target, sharing, [5, 3, 20000]),
    Id = fun(P) -> list_to_binary(call(Target, erlang, pid_to_list, [P])) end,
    Agent = join(Target),
    Holders = fun(Pids) -> value(holders, agent_client:sample(Agent, 1, [{holders, #{pids => Pids}}])) end,
    true = call(Target, erlang, register, [agent_test_holder, One]),
    #{rows := Rows, binaries := 9, bytes := 180000, complete := true} =
        Holders([Id(Other), <<"<0.0.99>">>, <<"agent_test_holder">>, <<"no pid">>, 5, Id(Other), <<"init">>, <<"no such name">>]),
    check("in the requested order", [Id(Other), Id(One), Id(Other), <<"<0.0.0>">>], [P || #{pid := P} <- Rows]),
    call(Target, stop, [One]),
    #{rows := []} = Holders([Id(One)]),
    [{holders, error, _, _, _}] = maps:get(items, agent_client:sample(Agent, 2, [{holders, #{pids => no_list}}])),
    agent_client:leave(Agent).

hanging_holder(Target) ->
    {_, Pids} = call(Target, sharing, [4, 3, 20000]),
    Hanging = call(Target, hanging, []),
    Depth = call(Target, depth, []) + 1,
    Busy = call(Target, busy, [8]),
    wait(fun() -> lists:min(lists:droplast(call(Target, erlang, statistics, [active_tasks]))) > 1 end, 5000),
    Agent = join(Target),
    Names = [list_to_binary(call(Target, erlang, pid_to_list, [P])) || P <- [Hanging | Pids]],
    call(Target, hang, [Hanging, Depth]),
    case maps:get(items, agent_client:sample(Agent, 1, [{holders, #{pids => Names, limit_ms => 4000}}])) of
        [{holders, ok, _, _, #{rows := Rows}}] ->
            check("the others", tl(Names), [P || #{pid := P, told := ok} <- Rows]);
        %% The agent may have been on the scheduler that hangs.
        [{holders, timeout, _, _, #{}}] -> ok
    end,
    [call(Target, stop, [P]) || P <- [Busy, Hanging]],
    agent_client:leave(Agent).

%% On a busy host, all processes have to wait. Tests of other limits must not stop because of that.
no_latency_limit() -> #{latency_limit_ms => 60000}.

collect_named(Target) ->
    {_, Pids} = call(Target, garbage, [50, 30000]),
    {_, Others} = call(Target, garbage, [50, 30000]),
    check("none is collected yet", {0, 0}, {call(Target, count_collected, [Pids]), call(Target, count_collected, [Others])}),
    Agent = join(Target),
    Names = [list_to_binary(call(Target, erlang, pid_to_list, [P])) || P <- Pids],
    Value = value(collect, agent_client:sample(Agent, 1, [{collect, (no_latency_limit())#{pids => [<<"<0.0.99>">>, <<"x">> | Names], top => 7}}])),
    #{how := named, collected := 50, largest := 51, no_answer := 0, large := 0, stopped := done, rows := Rows,
      heap_before := Before, heap_after := After, by_chance := #{collected := 0}, us := Us, longest_us := Longest,
      memory_before := #{processes := MB, binary := _, total := _}, memory_after := #{processes := MA}} = Value,
    check("only the selected ones", {50, 0}, {call(Target, count_collected, [Pids]), call(Target, count_collected, [Others])}),
    check({"freed", Before, After}, Before - After > 50 * 200 * 1024),
    check({"the longest of five batches", Longest, Us}, Longest * 5 >= Us),
    check({"less memory", MB, MA}, MB - MA > (Before - After) div 2),
    check("seven rows", 7, length(Rows)),
    [check({"row", R}, lists:member(P, Names) andalso A < B)
     || #{pid := P, heap_before := B, heap_after := A, binary_before := _, binary_after := _, us := _, initial_call := _} = R <- Rows],
    %% Processes with heaps above the limit are not collected.
    OtherNames = [list_to_binary(call(Target, erlang, pid_to_list, [P])) || P <- Others],
    Large = value(collect, agent_client:sample(Agent, 2, [{collect, (no_latency_limit())#{pids => OtherNames, max_heap_bytes => 100000}}])),
    check("too large", {0, 50, 0}, {maps:get(collected, Large), maps:get(large, Large), call(Target, count_collected, [Others])}),
    check("priority restored", high, collector_priority(Target, Agent)),
    agent_client:leave(Agent).

collector_priority(Target, #{agent := Pid}) ->
    {links, [Collector]} = call(Target, erlang, process_info, [Pid, links]),
    {priority, Priority} = call(Target, erlang, process_info, [Collector, priority]),
    Priority.

collect_sample(Target) ->
    {_, Pids} = call(Target, garbage, [2000, 2000]),
    Agent = join(Target),
    Collect = fun(Seq, Params) ->
                  Merged = maps:merge(no_latency_limit(), Params#{pause_ms => 1, batch => 50}),
                  value(collect, agent_client:sample(Agent, Seq, [{collect, Merged}]))
              end,
    [Large | _] = element(2, call(Target, garbage, [3, 500000])),
    #{how := sample, processes := All, chosen := Chosen, largest := Largest, rest_bytes := Limit, collected := Collected, gone := Gone,
      by_chance := #{collected := Count, heap_kib := Kib, heap_kib_squares := Squares}, heap_before := Before, heap_after := After,
      stopped := done} = Collect(1, #{share => 200, max_processes => 100000}),
    check({"a quarter are the largest", Largest}, Largest =:= Chosen div 4),
    check("a large one is collected", 1, call(Target, count_collected, [[Large]])),
    check({"upper limit of the others", Limit}, Limit > 10000 andalso Limit < 1000000),
    check({"chosen at random", Count}, Count > 0 andalso Count =< Chosen - Largest),
    check({"squares", Squares, Kib}, Squares * Count >= Kib * Kib andalso Squares * Count < 2 * Kib * Kib),
    check({"freed by random ones, less than by all", Kib}, Kib > 0 andalso Kib * 1024 < Before - After),
    check({"a fifth", All, Chosen}, All > 2000 andalso abs(Chosen - All div 5) < All div 10),
    check("all chosen ones", Chosen, Collected + Gone),
    Some = call(Target, count_collected, [Pids]),
    check({"random ones", Some, Chosen}, Some =< Chosen andalso Some > Chosen * 8 div 10 - 30),
    #{chosen := Default} = Collect(2, #{}),
    check({"at most a thousand by default", Default}, Default =< 1000 andalso Default > 900),
    #{chosen := 7} = Collect(3, #{max_processes => 7}),
    agent_client:leave(Agent).

collect_limits(Target) ->
    {_, Pids} = call(Target, garbage, [3000, 3000]),
    Agent = join(Target),
    Collect = fun(Seq, Params) -> value(collect, agent_client:sample(Agent, Seq, [{collect, Params}])) end,
    check("none is collected yet", 0, call(Target, count_collected, [Pids])),
    #{stopped := limit, collected := Few, chosen := Chosen} =
        Collect(1, (no_latency_limit())#{max_processes => 100000, pause_ms => 50, batch => 10, limit_ms => 1500}),
    check({"in time", Few, Chosen}, Few > 0 andalso Few < 400 andalso Chosen > 2500),
    %% The last batch may be incomplete.
    check({"no more than reported", Few}, call(Target, count_collected, [Pids]) =< Few + 10),
    %% The limit when other processes have to wait.
    Busy = call(Target, busy, [100]),
    Before = call(Target, count_collected, [Pids]),
    #{stopped := Why, collected := OnBusy} = Collect(2, #{max_processes => 100000, limit_ms => 5000}),
    check({"stopped because others wait", Why}, lists:member(Why, [latency, queue])),
    check({"stopped immediately", OnBusy}, OnBusy =< 20),
    #{stopped := Queue} = Collect(3, (no_latency_limit())#{max_processes => 100000, limit_ms => 5000, queue_limit => 3}),
    check("stopped at a long run queue", queue, Queue),
    check("few more collected", call(Target, count_collected, [Pids]), fun(N) -> N =< Before + 30 end),
    call(Target, stop, [Busy]),
    agent_client:leave(Agent).

collect_and_leave(Target) ->
    {_, Pids} = call(Target, garbage, [3000, 3000]),
    #{agent := Pid} = Agent = join(Target),
    Pid ! {sample, self(), 1, [{collect, (no_latency_limit())#{max_processes => 100000, pause_ms => 20, batch => 10}}], #{}},
    wait(fun() -> call(Target, count_collected, [Pids]) > 50 end, 10000),
    {beamtune, left} = agent_client:leave(Agent),
    At = call(Target, count_collected, [Pids]),
    receive after 500 -> ok end,
    check("at most the one in progress", call(Target, count_collected, [Pids]), fun(N) -> N =< At + 1 end),
    check("not all", At, fun(N) -> N < 2000 end).

collect_without_client(Target) ->
    {_, Pids} = call(Target, garbage, [3000, 3000]),
    #{agent := Pid, session := Session} = join(Target, #{lease_ms => 1000}),
    Pid ! {sample, self(), 1, [{collect, (no_latency_limit())#{max_processes => 100000, pause_ms => 50, batch => 10}}], #{}},
    receive {'EXIT', Session, {beamtune, client_gone}} -> ok after 5000 -> exit(lease_never_ends) end,
    At = call(Target, count_collected, [Pids]),
    receive after 500 -> ok end,
    check("at most the one in progress", call(Target, count_collected, [Pids]), fun(N) -> N =< At + 1 andalso N < 2000 end).

leaving_carriers(Target) ->
    call(Target, fragmented, [100, 4000, 1000, 0]),
    [begin
         #{agent := Pid} = Agent = join(Target),
         Pid ! {sample, self(), N, [{carriers, #{pools => true}}], #{}},
         receive after N * 7 -> ok end,
         {beamtune, left} = agent_client:leave(Agent),
         clean(Target)
     end || N <- lists:seq(0, 20)].
