%% @doc Tests of lock counters. Run by agent_test. All but the first two tests need an emulator that counts locks.
%% BEAMTUNE_LCNT_25 and so on name a program within the release's root, which is started instead of erl.
-module(agent_locks_test).
-export([tests/0]).

-import(agent_nodes, [spawn_client/1, call/3, call/4, check/2, check/3, clean/1, items/1, join/1, join/2, result/1, value/2, wait/2, with_lcnt/2]).

%% The categories that are counted by default, and all of them.
-define(DEFAULT, [allocator, db, distribution, generic, io, scheduler]).
-define(ALL, [allocator, db, debug, distribution, generic, io, process, scheduler]).

%% See agent_test:tests/0.
tests() ->
    Counting = [{"lock_counts_equal_those_of_lcnt", fun as_lcnt/1},
                {"sums_of_a_snapshot_equal_the_output_of_lcnt", fun as_lcnt_prints/1},
                {"mask_is_restored_whichever_process_dies", fun mask_is_restored/1},
                {"one_client_counts_at_a_time", fun one_at_a_time/1},
                {"nothing_is_counted_while_copy_save_is_on", fun copy_save/1},
                {"counts_that_are_too_large_are_not_read", fun too_large/1},
                {"counting_that_takes_too_long_is_aborted", fun too_late/1},
                {"locks_are_reported_with_their_owners", fun owners/1},
                {"counts_of_very_many_processes_are_copied_nowhere", fun many_processes/1},
                {"counts_that_another_tool_clears_are_reported_as_disturbed", fun disturbed/1},
                {"a_mask_that_another_tool_sets_meanwhile_stays", fun foreign_mask/1},
                {"answers_of_locks_hold_only_plain_data", fun only_plain_data/1}],
    [{"an_emulator_that_does_not_count_locks_is_reported", fun not_lcnt/1},
     {"available_memory_of_a_control_group_is_its_limit_minus_its_use", fun available_memory/1}
     | [{Name, fun(Target) -> with_lcnt(Target, Test) end} || {Name, Test} <- Counting]].

not_lcnt(Target) ->
    Agent = join(Target),
    Requested = [locks, {locks, #{estimate => true}}, {locks, #{for_ms => 1000, limit_ms => 2000}}],
    [check("not counted", {locks, ok, #{told => not_lcnt}}, {N, S, V}) || {N, S, _, _, V} <- items(agent_client:sample(Agent, 1, Requested))],
    Wrong = [{locks, #{for_ms => 1000, limit_ms => 500}}, {locks, #{categories => []}}, {locks, #{categories => [<<"nonsense">>]}},
             {locks, #{categories => [<<"db">> | <<"io">>]}}],
    [check("refused", {locks, error, true}, {N, S, is_binary(V)}) || {N, S, _, _, V} <- items(agent_client:sample(Agent, 2, Wrong))],
    {beamtune, left} = agent_client:leave(Agent).

%%% Counts ----------------------------------------------------------------------------------------------------

mask(Target) -> lists:sort(call(Target, erts_debug, lcnt_control, [mask])).

is_counting(Target) -> call(Target, erlang, whereis, [beamtune_counts_locks]) =/= undefined.

%% Requests lock counters, without waiting for them.
request(#{agent := Pid}, Seq, Params) -> Pid ! {sample, self(), Seq, [{locks, Params}], #{}}.

answer(Seq) ->
    receive {beamtune, sample, Seq, Sample} -> Sample after 60000 -> exit(no_sample) end.

%% Requests the item and calls Do as soon as counting has begun.
counted_while(Target, Agent, Params, Do) ->
    request(Agent, 7, Params),
    wait(fun() -> is_counting(Target) andalso mask(Target) =:= categories(Params) end, 10000),
    %% The counters of the test's table are cleared first.
    wait(fun() -> lists:all(fun({_, {Tries, _, _}, _}) -> Tries < 50 end, places(Target, db_tab, marked)) end, 10000),
    Do(),
    value(locks, answer(7)).

categories(#{categories := Bins}) -> lists:sort([binary_to_atom(B, utf8) || B <- Bins]);
categories(_) -> ?DEFAULT.

%% Returns the current counters of all locks with this name, according to lcnt.
places(Target, Class, Id) ->
    {_, Locks} = lists:keyfind(locks, 1, call(Target, erts_debug, lcnt_collect, [])),
    lists:append([Places || {C, I, _, Places} <- Locks, C =:= Class, I =:= Id]).

%% Returns sums by place: [Tries, Collisions, Microseconds, Waits | Bins].
by_place(Places) ->
    lists:foldl(fun({{File, Line}, {Tries, Collisions, {S, Ns, Waits}}, Bins}, All) ->
                    Numbers = [Tries, Collisions, S * 1000000 + Ns div 1000, Waits | tuple_to_list(Bins)],
                    File0 = case File of undefined -> undefined; _ -> atom_to_binary(File, utf8) end,
                    add(File0, Line, Numbers, All)
                end, #{}, Places).

rows_by_place(Rows) ->
    lists:foldl(fun({File, Line, Tries, Collisions, Us, Waits, Bins}, All) ->
                    add(File, Line, [Tries, Collisions, Us, Waits | Bins ++ lists:duplicate(30 - length(Bins), 0)], All)
                end, #{}, Rows).

add(File, Line, Numbers, All) ->
    case lists:sum(Numbers) of
        0 -> All;
        _ -> All#{{File, Line} => lists:zipwith(fun(A, B) -> A + B end, Numbers, maps:get({File, Line}, All, [0 || _ <- Numbers]))}
    end.

as_lcnt(Target) ->
    %% The mask does not change, so that no counters are lost at the end.
    call(Target, erts_debug, lcnt_control, [mask, ?DEFAULT]),
    Tables = [call(Target, contended, [Name, Options, 1, 1])
              || {Name, Options} <- [{marked, []}, {coarse, []}, {fine, [{write_concurrency, true}]}]],
    call(Target, contend, [marked, 2, 1000]),
    Agent = join(Target),
    Load = fun() -> [call(Target, contend, [Name, 8, 20000]) || Name <- [coarse, fine]] end,
    Value = counted_while(Target, Agent, #{for_ms => 4000, top => 2000}, Load),
    #{told := ok, categories := Categories, duration_us := Us, locks := Locks, singles := Singles, disturbed := false, unplaced := 0,
      classes := Classes, rows := Rows, cost_bytes := Cost, reductions := Reductions, processes := Processes,
      estimate := #{bytes := _, reserved_bytes := Reserved}} = Value,
    check("categories", [atom_to_binary(C, utf8) || C <- ?DEFAULT], Categories),
    check({"microseconds", Us}, Us >= 4000000 andalso Us < 10000000),
    check({"work", Reductions}, Reductions > 8 * 20000),
    check({"processes", Processes}, Processes > 10 andalso Processes < 1000),
    check({"cost", Cost, Reserved}, Cost > 100 * Locks andalso Cost < Reserved + 1000000),
    {_, Raw} = lists:keyfind(locks, 1, call(Target, erts_debug, lcnt_collect, [])),
    check({"number of locks", Locks, length(Raw)}, abs(Locks - length(Raw)) < 50),
    check("all classes", lists:usort([atom_to_binary(C, utf8) || {C, _, _, _} <- Raw]), lists:usort([C || {C, _, _, _} <- Classes])),
    %% Nothing has used the slots in the meantime.
    Slots = by_place([P || {db_hash_slot, fine, _, Places} <- Raw, P <- Places]),
    SlotRows = [R || {<<"db_hash_slot">>, <<"rw_mutex">>, <<"fine">>, _, _, _} = R <- Rows],
    check("slots", Slots, rows_by_place(lists:append([Places || {_, _, _, _, _, Places} <- SlotRows]))),
    check("number of slots", 64, lists:sum([N || {_, _, _, _, N, _} <- SlotRows])),
    check("used", Slots, fun(_) -> lists:sum([Tries || [Tries | _] <- maps:values(Slots)]) >= 160000 end),
    [{_, _, OfClass, Places}] = [C || {<<"db_hash_slot">>, _, _, _} = C <- Classes],
    check({"class", OfClass}, OfClass >= 64),
    [check({"class", Key}, lists:all(fun({A, B}) -> A >= B end, lists:zip(maps:get(Key, rows_by_place(Places)), Numbers)))
     || {Key, Numbers} <- maps:to_list(Slots)],
    %% Looking up the table's name takes the lock of the table, without contention.
    Table = by_place([P || {db_tab, coarse, _, Ps} <- Raw, P <- Ps]),
    [{_, _, _, _, 1, TablePlaces}] = [R || {<<"db_tab">>, _, <<"coarse">>, _, _, _} = R <- Rows],
    Contended = fun(ByPlace) -> maps:filter(fun(_, [_, _ | Numbers]) -> lists:sum(Numbers) > 0 end, ByPlace) end,
    check("table", maps:map(fun(_, [_ | N]) -> N end, Contended(Table)),
          maps:map(fun(_, [_ | N]) -> N end, Contended(rows_by_place(TablePlaces)))),
    %% The locks with the longest waiting times come first.
    Sums = [{lists:sum([U || {_, _, _, _, U, _, _} <- Ps]), lists:sum([C || {_, _, _, C, _, _, _} <- Ps])}
            || {_, _, _, _, 1, Ps} <- lists:sublist(Rows, Singles)],
    check("order", Sums, lists:reverse(lists:sort(Sums))),
    %% If there are few rows, the other locks with the same name are summed up in another row.
    #{singles := 2, rows := TopRows} = counted_while(Target, Agent, #{for_ms => 2000, top => 2}, fun() -> call(Target, contend, [fine, 8, 20000]) end),
    OfFine = [N || {<<"db_hash_slot">>, _, <<"fine">>, _, N, _} <- TopRows],
    check({"top locks and the sum of the others", OfFine}, lists:member(OfFine, [[], [1, 63], [1, 1, 62]])),
    {beamtune, left} = agent_client:leave(Agent),
    check("mask", ?DEFAULT, mask(Target)),
    [call(Target, stop, [T]) || T <- Tables].

%%% Output of lcnt -----------------------------------------------------------------------------------------------

%% One snapshot of the counters is passed to both the agent's code, which is compiled from its source, and lcnt.
as_lcnt_prints(Target) ->
    Tables = [call(Target, contended, [Name, Options, 1, 1]) || {Name, Options} <- [{coarse, []}, {fine, [{write_concurrency, true}]}]],
    call(Target, erts_debug, lcnt_control, [mask, ?DEFAULT]),
    call(Target, erts_debug, lcnt_clear, []),
    %% Wait until there is contention.
    wait(fun() ->
             [call(Target, contend, [Name, 8, 20000]) || Name <- [coarse, fine]],
             lists:sum([Collisions || {_, {_, Collisions, _}, _} <- places(Target, db_tab, coarse)]) > 0
         end, 60000),
    Snapshot = call(Target, erts_debug, lcnt_collect, []),
    call(Target, erts_debug, lcnt_control, [mask, ?ALL]),
    Source = agent_from_source(),
    #{classes := Classes, rows := Rows, unplaced := 0} = Source:summed(2000, Snapshot),
    Server = start_lcnt(Snapshot),
    %% Compare each class.
    Print = fun(Combine, Columns) -> [{combine, Combine}, {print, [name, tries, colls, time | Columns]} | no_limits()] end,
    OfClasses = sums([{Class, numbers(Place)} || {Class, _, _, Places} <- Classes, Place <- Places]),
    Combined = printed(Server, fun() -> lcnt:conflicts(Print(true, [])) end),
    check("classes", sums([{name(Name), integers(Of)} || [Name | Of] <- Combined]), OfClasses),
    check("contended", OfClasses, fun(#{<<"db_tab">> := [_, Collisions, _]}) -> Collisions > 0 end),
    %% Compare each individual lock.
    Single = printed(Server, fun() -> lcnt:conflicts(Print(false, [id])) end),
    Printed = [{name(Name), integers([T, C, Us])} || [Name, T, C, Us, _ | _] <- Single],
    Singles = [{Class, sum([numbers(Place) || Place <- Places])} || {Class, _, _, 1, Places} <- Rows],
    check("locks", lists:sort(nonzero(Printed)), lists:sort(nonzero(Singles))),
    %% Compare each place of each class.
    [begin
         Options = [{combine, true}, {locations, true} | no_limits()],
         Lines = printed(Server, fun() -> lcnt:inspect(binary_to_atom(Class, utf8), Options) end),
         Of = sums([{{File, Line}, numbers(Place)} || {C, _, _, Ps} <- Classes, C =:= Class, {File, Line, _, _, _, _, _} = Place <- Ps]),
         check({"places of", Class}, sums([{place(Place), integers([T, C, Us])} || [Place, T, C, _, Us | _] <- Lines]), Of)
     end || Class <- maps:keys(OfClasses)],
    %% However many individual locks are reported, together with the sums of the others they add up to all locks with that name.
    [[_ | Slots]] = printed(Server, fun() -> lcnt:inspect({db_hash_slot, fine}, Print(true, [])) end),
    [begin
         #{rows := TopRows} = Source:summed(Top, Snapshot),
         Of = sum([numbers(Place) || {<<"db_hash_slot">>, _, fine, _, Places} <- TopRows, Place <- Places]),
         check({"slots", Top}, Of =:= [] orelse Of =:= integers(Slots), true)
     end || Top <- [1, 2, 20, 50, 2000]],
    stop_lcnt(Server),
    [call(Target, stop, [T]) || T <- Tables].

%% Loads the agent compiled from its source, with all functions exported.
agent_from_source() ->
    {ok, Module, Beam} = compile:file(os:getenv("AGENT_SOURCE"),
                                      [binary, export_all, nowarn_export_all, {d, 'AGENT_NAME', agent_as_source}]),
    {module, Module} = code:load_binary(Module, "agent_as_source", Beam),
    Module.

no_limits() -> [{max_locks, none}, {thresholds, [{tries, -1}, {colls, -1}, {time, -1}]}].

numbers({_, _, Tries, Collisions, Us, _, _}) -> [Tries, Collisions, Us].

name(Text) -> iolist_to_binary(string:replace(Text, "'", "", all)).

place(Text) ->
    [File, Line] = string:split(Text, ":", trailing),
    {case name(File) of <<"undefined">> -> undefined; Name -> Name end, list_to_integer(Line)}.

integers(Texts) -> [list_to_integer(Text) || Text <- Texts].

sum([]) -> [];
sum([First | Rest]) -> lists:foldl(fun(A, B) -> lists:zipwith(fun(X, Y) -> X + Y end, A, B) end, First, Rest).

%% Returns sums by key, except for those that are all 0.
sums(Pairs) ->
    maps:from_list(nonzero([{Key, sum([N || {K, N} <- Pairs, K =:= Key])} || Key <- lists:usort([K || {K, _} <- Pairs])])).

nonzero(Pairs) -> [Pair || {_, Numbers} = Pair <- Pairs, lists:sum(Numbers) > 0].

%% lcnt prints to the group leader of the process that started it.
start_lcnt(Snapshot) ->
    Leader = group_leader(),
    Server = spawn_link(fun() -> io_server(Leader, []) end),
    group_leader(Server, self()),
    {ok, _} = lcnt:start(),
    group_leader(Leader, self()),
    ok = gen_server:call(lcnt, {collect, Snapshot}),
    Server.

stop_lcnt(Server) ->
    lcnt:stop(),
    unlink(Server),
    exit(Server, kill).

%% Returns the words of the lines with numbers that lcnt prints during Print.
printed(Server, Print) ->
    ok = Print(),
    Server ! {take, self()},
    Text = receive {taken, Taken} -> Taken after 5000 -> exit(lcnt_prints_nothing) end,
    [Words || Line <- string:lexemes(Text, "\n"), [_, Tries | _] = Words <- [string:lexemes(Line, " ")],
              lists:all(fun(Char) -> Char >= $0 andalso Char =< $9 end, Tries)].

io_server(Leader, Text) ->
    receive
        {io_request, From, As, {put_chars, unicode, Module, Function, Arguments}} ->
            From ! {io_reply, As, ok},
            io_server(Leader, [Text | unicode:characters_to_binary(apply(Module, Function, Arguments))]);
        {io_request, From, As, {put_chars, unicode, Chars}} ->
            From ! {io_reply, As, ok},
            io_server(Leader, [Text | unicode:characters_to_binary(Chars)]);
        {io_request, _, _, _} = Other ->
            Leader ! Other,
            io_server(Leader, Text);
        {take, From} ->
            From ! {taken, unicode:characters_to_list(Text)},
            io_server(Leader, [])
    end.

%%% Limits, and how counting ends ------------------------------------------------------------------------------

%% Reads the files of a fake control group, without a node.
available_memory(_) ->
    Source = agent_from_source(),
    check("folders", [<<"/m/a:b/c">>, <<"/m/a:b">>, <<"/m">>], Source:folders(<<"/m">>, <<"/a:b/c">>)),
    check("outside", [<<"/m">>], Source:folders(<<"/m">>, <<"/../c">>)),
    check("no number", true, lists:all(fun is_integer/1, Source:group_left(<<"9:cpu,memory:/no/such:group">>))),
    check("of another controller", [], Source:group_left(<<"1:name=systemd:/a">>)),
    Folder = string:trim(os:cmd("mktemp -d")),
    Path = list_to_binary(Folder),
    Left = fun(Files) ->
               [ok = file:write_file(filename:join(Folder, Name), Text) || {Name, Text} <- Files],
               Source:folders_left([Path], <<"/memory.max">>, <<"/memory.current">>, <<"inactive_file">>)
           end,
    try
        check("no files", [], Left([])),
        check("no limit", [], Left([{"memory.max", "max\n"}, {"memory.current", "900\n"}])),
        check("limit minus use", [100], Left([{"memory.max", "1000\n"}])),
        check("without inactive files", [400], Left([{"memory.stat", "anon 600\ninactive_file 300\nactive_file 5\n"}])),
        check("never negative", [0], Left([{"memory.current", "2000\n"}]))
    after
        [file:delete(filename:join(Folder, Name)) || Name <- ["memory.max", "memory.current", "memory.stat"]],
        file:del_dir(Folder)
    end,
    #{available_bytes := Available} = Source:expected_locks([db], ?ALL),
    check({"available here", Available}, is_integer(Available) andalso Available > 0),
    %% Categories that are not counted so far need additional memory for their counters.
    Bytes = fun(Mask) -> maps:get(bytes, Source:expected_locks([process], Mask)) end,
    check("additional counters", Bytes(?ALL) + 5 * 1000 * erlang:system_info(process_count), Bytes(?DEFAULT)).

%% Counting ends in a different way each time.
mask_is_restored(Target) ->
    check("all", ?ALL, mask(Target)),
    Db = #{categories => [<<"db">>], for_ms => 60000},
    Begin = fun() ->
                Agent = join(Target),
                request(Agent, 1, Db),
                wait(fun() -> mask(Target) =:= [db] end, 10000),
                Agent
            end,
    CheckMask = fun(EndedBy) ->
                    try wait(fun() -> mask(Target) =:= ?ALL andalso not is_counting(Target) end, 5000)
                    catch exit:{wait_timeout, _, _} -> exit({not_restored, EndedBy, mask(Target), is_counting(Target)})
                    end,
                    clean(Target)
                end,
    #{told := ok} = value(locks, agent_client:sample(First = join(Target), 1, [{locks, #{categories => [<<"db">>], for_ms => 200}}])),
    check("restored when the answer arrives", {?ALL, false}, {mask(Target), is_counting(Target)}),
    {beamtune, left} = agent_client:leave(First),
    {beamtune, left} = agent_client:leave(Begin()),
    CheckMask(left),
    #{agent := Agent, session := Session} = Begin(),
    exit(Agent, kill),
    receive {'EXIT', Session, {beamtune, agent_ended, _}} -> ok after 5000 -> exit(session_stays) end,
    CheckMask(agent),
    #{session := Keeper} = Begin(),
    exit(Keeper, kill),
    receive {'EXIT', Keeper, killed} -> ok after 5000 -> exit(session_stays) end,
    CheckMask(keeper),
    Client = spawn_client(fun() -> Begin(), receive after infinity -> ok end end),
    wait(fun() -> mask(Target) =:= [db] end, 10000),
    exit(Client, kill),
    CheckMask(client),
    #{agent := Shared} = Third = Begin(),
    {links, [Collector]} = call(Target, erlang, process_info, [Shared, links]),
    exit(Collector, kill),
    #{items := [{locks, error, _, _, _}]} = answer(1),
    {beamtune, left} = agent_client:leave(Third),
    CheckMask(collector),
    Fourth = Begin(),
    exit(call(Target, erlang, whereis, [beamtune_counts_locks]), kill),
    #{told := lost} = value(locks, answer(1)),
    {beamtune, left} = agent_client:leave(Fourth),
    CheckMask(holder),
    %% Ends while the counters are read. The read waits for a dirty scheduler, since all are occupied.
    #{agent := Late} = Fifth = join(Target),
    request(Fifth, 1, Db#{for_ms => 1000}),
    wait(fun() -> mask(Target) =:= [db] end, 10000),
    Holder = call(Target, erlang, whereis, [beamtune_counts_locks]),
    Waiting = {current_function, {agent_client:name(), is_over, 3}},
    wait(fun() -> call(Target, erlang, process_info, [Holder, current_function]) =:= Waiting end, 10000),
    Dirty = call(Target, erlang, system_info, [dirty_cpu_schedulers]),
    [call(Target, erlang, spawn, [erts_debug, dirty_cpu, [wait, 6000]]) || _ <- lists:seq(1, Dirty)],
    {links, [Collector5]} = call(Target, erlang, process_info, [Late, links]),
    %% The agent, the reader, and the process that reads the counters.
    wait(fun() -> {links, Links} = call(Target, erlang, process_info, [Collector5, links]), length(Links) =:= 3 end, 10000),
    exit(Holder, kill),
    #{told := ok, disturbed := false} = value(locks, answer(1)),
    {beamtune, left} = agent_client:leave(Fifth),
    CheckMask(holder_while_collecting).

one_at_a_time(Target) ->
    First = join(Target),
    request(First, 1, #{for_ms => 3000}),
    wait(fun() -> mask(Target) =:= ?DEFAULT end, 10000),
    Second = spawn_client(fun() ->
                       Agent = join(Target),
                       Value = value(locks, agent_client:sample(Agent, 1, [{locks, #{for_ms => 100}}])),
                       {Value, agent_client:leave(Agent)}
                   end),
    {#{told := busy}, {remaining, 1}} = result(Second),
    #{told := ok, disturbed := false} = value(locks, answer(1)),
    check("mask", ?ALL, mask(Target)),
    {beamtune, left} = agent_client:leave(First).

copy_save(Target) ->
    call(Target, erts_debug, lcnt_control, [copy_save, true]),
    Agent = join(Target),
    #{told := copy_save} = value(locks, agent_client:sample(Agent, 1, [{locks, #{for_ms => 100}}])),
    #{told := copy_save, estimate := #{locks := _}} = value(locks, agent_client:sample(Agent, 2, [{locks, #{estimate => true}}])),
    check("still on", {true, ?ALL}, {call(Target, erts_debug, lcnt_control, [copy_save]), mask(Target)}),
    call(Target, erts_debug, lcnt_control, [copy_save, false]),
    {beamtune, left} = agent_client:leave(Agent).

too_large(Target) ->
    Table = call(Target, contended, [marked, [], 1, 1000]),
    Agent = join(Target),
    #{told := too_large, estimate := #{reserved_bytes := Reserved, bytes := Bytes}} =
        value(locks, agent_client:sample(Agent, 1, [{locks, #{for_ms => 100, max_bytes => 1000}}])),
    check({"bytes", Bytes, Reserved}, Bytes > 100000 andalso Bytes < Reserved),
    check("counts not cleared", lists:sum([T || {_, {T, _, _}, _} <- places(Target, db_tab, marked)]), fun(Tries) -> Tries > 900 end),
    %% The estimate includes the locks of tables.
    Tables = call(Target, unnamed_tables, [3000]),
    #{estimate := #{locks := WithTables}} = value(locks, agent_client:sample(Agent, 2, [{locks, #{estimate => true}}])),
    call(Target, stop, [Tables]),
    #{estimate := #{locks := Without}} = value(locks, agent_client:sample(Agent, 3, [{locks, #{estimate => true}}])),
    check({"tables", WithTables, Without}, WithTables - Without >= 6000),
    check("mask", ?ALL, mask(Target)),
    {beamtune, left} = agent_client:leave(Agent),
    call(Target, stop, [Table]).

%% All dirty schedulers are occupied, so counting cannot begin.
too_late(Target) ->
    Dirty = call(Target, erlang, system_info, [dirty_cpu_schedulers]),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs]),
    Occupying = [call(Target, erlang, spawn, [erts_debug, dirty_cpu, [wait, 4000]]) || _ <- lists:seq(1, Dirty)],
    receive after 300 -> ok end,
    #{told := no_answer} = value(locks, agent_client:sample(Agent, 2, [{locks, #{for_ms => 100, limit_ms => 1000}}])),
    wait(fun() -> [] =:= [P || P <- Occupying, call(Target, erlang, is_process_alive, [P])] end, 20000),
    wait(fun() -> not is_counting(Target) andalso mask(Target) =:= ?ALL end, 10000),
    #{told := ok} = value(locks, agent_client:sample(Agent, 3, [{locks, #{for_ms => 100}}])),
    {beamtune, left} = agent_client:leave(Agent).

owners(Target) ->
    Tables = [call(Target, contended, [Name, [], 1, 1]) || Name <- [marked, 'my table']],
    Sink = call(Target, sink, []),
    call(Target, erlang, register, [agent_locks_sink, Sink]),
    Agent = join(Target),
    Send = fun() ->
               [call(Target, erlang, send, [Sink, N]) || N <- lists:seq(1, 200)],
               call(Target, contend, ['my table', 4, 2000])
           end,
    Params = #{for_ms => 4000, top => 2000, categories => [atom_to_binary(C, utf8) || C <- ?ALL]},
    #{rows := Rows} = counted_while(Target, Agent, Params, Send),
    Of = fun(Class, Id) -> lists:usort([E || {C, _, I, E, _, _} <- Rows, C =:= Class, I =:= Id]) end,
    check("table", Of(<<"db_tab">>, <<"my table">>), fun([E]) -> binary:match(E, <<"my table of agent_target:">>) =:= {0, 25} end),
    check("process", Of(<<"proc_msgq">>, <<"agent_locks_sink">>), fun([E]) -> binary:match(E, <<"agent_target:">>) =:= {0, 13} end),
    Ports = [{I, E} || {<<"port_lock">>, _, I, E, _, _} <- Rows],
    check({"ports", Ports}, lists:any(fun({I, E}) -> binary:match(I, <<"#Port<">>) =:= {0, 6} andalso E =/= undefined end, Ports)),
    Named = [I || {<<"proc_main">>, <<"proclock">>, I, _, 1, _} <- Rows],
    check({"registered", Named}, lists:member(<<"code_server">>, Named) orelse lists:member(<<"net_kernel">>, Named)),
    {beamtune, left} = agent_client:leave(Agent),
    [call(Target, stop, [P]) || P <- [Sink | Tables]].

%% There are 100,000 locks: a copy of their counters would double the memory that is needed to read them.
many_processes(Target) ->
    Idle = call(Target, idle, [20000]),
    Agent = join(Target),
    Params = #{for_ms => 200, categories => [<<"process">>], limit_ms => 60000},
    #{estimate := #{locks := Expected, bytes := Bytes}} = value(locks, agent_client:sample(Agent, 1, [{locks, Params#{estimate => true}}])),
    check({"expected", Expected, Bytes}, Expected > 100000 andalso Bytes < 100000000),
    #{told := ok, locks := Locks, cost_bytes := Cost, processes := Processes, us := Us, classes := Classes, left_out := []} =
        value(locks, agent_client:sample(Agent, 2, [{locks, Params}])),
    check({"locks", Locks}, Locks >= 5 * 20000 andalso abs(Locks - Expected) < Expected div 5),
    check({"processes", Processes}, Processes > 20000),
    check({"cost", Cost}, Cost > 400 * Locks andalso Cost < 2 * Bytes),
    check({"microseconds", Us}, Us < 20000000),
    [check({"class", C}, [N || {Name, <<"proclock">>, N, _} <- Classes, Name =:= C], fun([N]) -> N >= 20000 end)
     || C <- [<<"proc_main">>, <<"proc_msgq">>, <<"proc_btm">>, <<"proc_status">>, <<"proc_trace">>]],
    check("mask", ?ALL, mask(Target)),
    %% With that many processes, `process' is not put back into the mask after it was left out. The answer says so, and no memory
    %% is lost.
    Before = resident_bytes(Target),
    #{told := ok, left_out := [<<"process">>]} = value(locks, agent_client:sample(Agent, 3, [{locks, #{for_ms => 200}}])),
    After = resident_bytes(Target),
    check({"bytes", Before, After}, After - Before < 50000000),
    check("mask without processes", ?ALL -- [process], mask(Target)),
    #{told := ok, left_out := []} = value(locks, agent_client:sample(Agent, 4, [{locks, #{for_ms => 200}}])),
    call(Target, stop, [Idle]),
    wait(fun() -> call(Target, erlang, system_info, [process_count]) < 1000 end, 10000),
    {beamtune, left} = agent_client:leave(Agent).

resident_bytes(Target) ->
    {ok, Statm} = call(Target, file, read_file, [<<"/proc/self/statm">>]),
    [_, Pages | _] = binary:split(Statm, <<" ">>, [global]),
    4096 * binary_to_integer(Pages).

disturbed(Target) ->
    Agent = join(Target),
    request(Agent, 1, #{for_ms => 2000}),
    wait(fun() -> mask(Target) =:= ?DEFAULT end, 10000),
    receive after 500 -> ok end,
    call(Target, erts_debug, lcnt_clear, []),
    #{told := ok, disturbed := true} = value(locks, answer(1)),
    {beamtune, left} = agent_client:leave(Agent),
    check("mask", ?ALL, mask(Target)).

foreign_mask(Target) ->
    Agent = join(Target),
    request(Agent, 1, #{for_ms => 1000}),
    wait(fun() -> mask(Target) =:= ?DEFAULT end, 10000),
    call(Target, erts_debug, lcnt_control, [mask, [io]]),
    #{told := ok, disturbed := true} = value(locks, answer(1)),
    {beamtune, left} = agent_client:leave(Agent),
    check("mask", [io], mask(Target)),
    call(Target, erts_debug, lcnt_control, [mask, ?ALL]).

only_plain_data(Target) ->
    Agent = join(Target),
    Value = value(locks, agent_client:sample(Agent, 1, [{locks, #{for_ms => 100, top => 2000, categories => [atom_to_binary(C, utf8) || C <- ?ALL]}}])),
    check("counted", ok, maps:get(told, Value)),
    plain(Value),
    {beamtune, left} = agent_client:leave(Agent).

plain(Term) when is_map(Term) -> maps:fold(fun(K, V, _) -> true = is_atom(K), plain(V) end, ok, Term);
plain(Term) when is_tuple(Term) -> plain(tuple_to_list(Term));
plain(Term) when is_list(Term) -> lists:foreach(fun plain/1, Term);
plain(Term) when is_integer(Term) -> ok;
plain(Term) when is_binary(Term), byte_size(Term) =< 512 -> check("utf8", Term, unicode:characters_to_binary(Term));
plain(Term) -> check({"unknown atom", Term}, lists:member(Term, [ok, undefined, true, false])).
