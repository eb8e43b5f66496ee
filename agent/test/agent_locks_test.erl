%% @doc Tests of the counts of locks. Part of agent_test, which runs them. All but the first two need an emulator that counts locks:
%% BEAMTUNE_LCNT_25 and so on name a program that is started in the place of erl, as the release's root has it.
-module(agent_locks_test).
-export([tests/0]).

-import(agent_nodes, [apart/1, call/3, call/4, check/2, check/3, clean/1, items/1, join/1, join/2, result/1, value/2, wait/2, with_lcnt/2]).

-define(FEW, [allocator, db, distribution, generic, io, scheduler]).
-define(ALL, [allocator, db, debug, distribution, generic, io, process, scheduler]).

%% Name, what to do.
tests() ->
    Counting = [{"counts_of_locks_are_those_that_lcnt_has", fun as_lcnt/1},
                {"of_one_snapshot_the_agent_tells_what_lcnt_prints", fun as_lcnt_prints/1},
                {"what_is_counted_is_as_before_whoever_dies", fun mask_is_put_back/1},
                {"one_client_counts_at_a_time", fun one_at_a_time/1},
                {"counts_of_locks_that_have_gone_stay_where_somebody_keeps_them", fun copy_save/1},
                {"counts_that_are_too_large_are_not_collected", fun too_large/1},
                {"counting_that_takes_too_long_is_given_up", fun too_late/1},
                {"locks_are_told_with_whose_they_are", fun owners/1},
                {"counts_of_very_many_processes_are_collected_once", fun many_processes/1},
                {"who_begins_anew_meanwhile_is_told", fun disturbed/1},
                {"a_mask_that_somebody_sets_meanwhile_stays", fun foreign_mask/1},
                {"answers_of_locks_hold_only_plain_data", fun only_plain_data/1}],
    [{"an_emulator_that_counts_no_locks_says_so", fun not_lcnt/1},
     {"what_a_control_group_has_left_is_its_limit_less_what_it_needs", fun groups_left/1}
     | [{Name, fun(Target) -> with_lcnt(Target, Test) end} || {Name, Test} <- Counting]].

not_lcnt(Target) ->
    Agent = join(Target),
    Asked = [locks, {locks, #{estimate => true}}, {locks, #{for_ms => 1000, limit_ms => 2000}}],
    [check("told", {locks, ok, #{told => not_lcnt}}, {N, S, V}) || {N, S, _, _, V} <- items(agent_client:sample(Agent, 1, Asked))],
    Wrong = [{locks, #{for_ms => 1000, limit_ms => 500}}, {locks, #{categories => []}}, {locks, #{categories => [<<"nonsense">>]}},
             {locks, #{categories => [<<"db">> | <<"io">>]}}],
    [check("refused", {locks, error, true}, {N, S, is_binary(V)}) || {N, S, _, _, V} <- items(agent_client:sample(Agent, 2, Wrong))],
    {beamtune, left} = agent_client:leave(Agent).

%%% What is counted -------------------------------------------------------------------------------------------

mask(Target) -> lists:sort(call(Target, erts_debug, lcnt_control, [mask])).

is_counting(Target) -> call(Target, erlang, whereis, [beamtune_counts_locks]) =/= undefined.

%% Asks for counts, without waiting for them.
ask(#{agent := Pid}, Seq, Params) -> Pid ! {sample, self(), Seq, [{locks, Params}], #{}}.

answer(Seq) ->
    receive {beamtune, sample, Seq, Sample} -> Sample after 60000 -> exit(no_sample) end.

%% The item is asked for, and something done as soon as the counts have begun.
counted_while(Target, Agent, Params, Do) ->
    ask(Agent, 7, Params),
    wait(fun() -> is_counting(Target) andalso mask(Target) =:= categories(Params) end, 10000),
    %% What had been counted of the tests' table is set to nothing.
    wait(fun() -> lists:all(fun({_, {Tries, _, _}, _}) -> Tries < 50 end, places(Target, db_tab, marked)) end, 10000),
    Do(),
    value(locks, answer(7)).

categories(#{categories := Bins}) -> lists:sort([binary_to_atom(B, utf8) || B <- Bins]);
categories(_) -> ?FEW.

%% What lcnt has of a lock now, of all locks of that name.
places(Target, Class, Id) ->
    {_, Locks} = lists:keyfind(locks, 1, call(Target, erts_debug, lcnt_collect, [])),
    lists:append([Places || {C, I, _, Places} <- Locks, C =:= Class, I =:= Id]).

%% By place: [Tries, Collisions, Microseconds, Waits | Bins].
by_place(Places) ->
    lists:foldl(fun({{File, Line}, {Tries, Collisions, {S, Ns, Waits}}, Bins}, All) ->
                    Numbers = [Tries, Collisions, S * 1000000 + Ns div 1000, Waits | tuple_to_list(Bins)],
                    File0 = case File of undefined -> undefined; _ -> atom_to_binary(File, utf8) end,
                    add(File0, Line, Numbers, All)
                end, #{}, Places).

told_by_place(Rows) ->
    lists:foldl(fun({File, Line, Tries, Collisions, Us, Waits, Bins}, All) ->
                    add(File, Line, [Tries, Collisions, Us, Waits | Bins ++ lists:duplicate(30 - length(Bins), 0)], All)
                end, #{}, Rows).

add(File, Line, Numbers, All) ->
    case lists:sum(Numbers) of
        0 -> All;
        _ -> All#{{File, Line} => lists:zipwith(fun(A, B) -> A + B end, Numbers, maps:get({File, Line}, All, [0 || _ <- Numbers]))}
    end.

as_lcnt(Target) ->
    %% What is counted does not change, so that nothing is forgotten at the end.
    call(Target, erts_debug, lcnt_control, [mask, ?FEW]),
    Tables = [call(Target, contended, [Name, Options, 1, 1])
              || {Name, Options} <- [{marked, []}, {coarse, []}, {fine, [{write_concurrency, true}]}]],
    call(Target, contend, [marked, 2, 1000]),
    Agent = join(Target),
    Load = fun() -> [call(Target, contend, [Name, 8, 20000]) || Name <- [coarse, fine]] end,
    Value = counted_while(Target, Agent, #{for_ms => 4000, top => 2000}, Load),
    #{told := ok, categories := Categories, duration_us := Us, locks := Locks, singles := Singles, disturbed := false, unplaced := 0,
      classes := Classes, rows := Rows, cost_bytes := Cost, reductions := Reductions, processes := Processes,
      estimate := #{bytes := _, reserved_bytes := Reserved}} = Value,
    check("categories", [atom_to_binary(C, utf8) || C <- ?FEW], Categories),
    check({"microseconds", Us}, Us >= 4000000 andalso Us < 10000000),
    check({"work", Reductions}, Reductions > 8 * 20000),
    check({"processes", Processes}, Processes > 10 andalso Processes < 1000),
    check({"cost", Cost, Reserved}, Cost > 100 * Locks andalso Cost < Reserved + 1000000),
    {_, Raw} = lists:keyfind(locks, 1, call(Target, erts_debug, lcnt_collect, [])),
    check({"about as many", Locks, length(Raw)}, abs(Locks - length(Raw)) < 50),
    check("all classes", lists:usort([atom_to_binary(C, utf8) || {C, _, _, _} <- Raw]), lists:usort([C || {C, _, _, _} <- Classes])),
    %% Nobody has used its slots since.
    Slots = by_place([P || {db_hash_slot, fine, _, Places} <- Raw, P <- Places]),
    Told = [R || {<<"db_hash_slot">>, <<"rw_mutex">>, <<"fine">>, _, _, _} = R <- Rows],
    check("slots", Slots, told_by_place(lists:append([Places || {_, _, _, _, _, Places} <- Told]))),
    check("how many", 64, lists:sum([N || {_, _, _, _, N, _} <- Told])),
    check("used", Slots, fun(_) -> lists:sum([Tries || [Tries | _] <- maps:values(Slots)]) >= 160000 end),
    [{_, _, OfClass, Places}] = [C || {<<"db_hash_slot">>, _, _, _} = C <- Classes],
    check({"class", OfClass}, OfClass >= 64),
    [check({"class", Key}, lists:all(fun({A, B}) -> A >= B end, lists:zip(maps:get(Key, told_by_place(Places)), Numbers)))
     || {Key, Numbers} <- maps:to_list(Slots)],
    %% The table as a whole is looked at when it is named; nobody waits then.
    Whole = by_place([P || {db_tab, coarse, _, Ps} <- Raw, P <- Ps]),
    [{_, _, _, _, 1, WholePlaces}] = [R || {<<"db_tab">>, _, <<"coarse">>, _, _, _} = R <- Rows],
    Waited = fun(ByPlace) -> maps:filter(fun(_, [_, _ | Numbers]) -> lists:sum(Numbers) > 0 end, ByPlace) end,
    check("table", maps:map(fun(_, [_ | N]) -> N end, Waited(Whole)), maps:map(fun(_, [_ | N]) -> N end, Waited(told_by_place(WholePlaces)))),
    %% Those that were waited for the longest come first.
    Sums = [{lists:sum([U || {_, _, _, _, U, _, _} <- Ps]), lists:sum([C || {_, _, _, C, _, _, _} <- Ps])}
            || {_, _, _, _, 1, Ps} <- lists:sublist(Rows, Singles)],
    check("order", Sums, lists:reverse(lists:sort(Sums))),
    %% Of few that are told, what is left of their names is there.
    #{singles := 2, rows := Few} = counted_while(Target, Agent, #{for_ms => 2000, top => 2}, fun() -> call(Target, contend, [fine, 8, 20000]) end),
    OfFine = [N || {<<"db_hash_slot">>, _, <<"fine">>, _, N, _} <- Few],
    check({"two and the rest", OfFine}, lists:member(OfFine, [[], [1, 63], [1, 1, 62]])),
    {beamtune, left} = agent_client:leave(Agent),
    check("mask", ?FEW, mask(Target)),
    [call(Target, stop, [T]) || T <- Tables].

%%% What lcnt prints ---------------------------------------------------------------------------------------------

%% The counts are taken once, and given to both: the agent's own code, as it is in its source, and lcnt.
as_lcnt_prints(Target) ->
    Tables = [call(Target, contended, [Name, Options, 1, 1]) || {Name, Options} <- [{coarse, []}, {fine, [{write_concurrency, true}]}]],
    call(Target, erts_debug, lcnt_control, [mask, ?FEW]),
    call(Target, erts_debug, lcnt_clear, []),
    %% Until somebody had to wait.
    wait(fun() ->
             [call(Target, contend, [Name, 8, 20000]) || Name <- [coarse, fine]],
             lists:sum([Collisions || {_, {_, Collisions, _}, _} <- places(Target, db_tab, coarse)]) > 0
         end, 60000),
    Snapshot = call(Target, erts_debug, lcnt_collect, []),
    call(Target, erts_debug, lcnt_control, [mask, ?ALL]),
    Source = as_source(),
    #{classes := Classes, rows := Rows, unplaced := 0} = Source:summed(2000, Snapshot),
    Server = start_lcnt(Snapshot),
    %% Each class.
    Print = fun(Combine, What) -> [{combine, Combine}, {print, [name, tries, colls, time | What]} | everything()] end,
    OfClasses = sums([{Class, numbers(Place)} || {Class, _, _, Places} <- Classes, Place <- Places]),
    Combined = printed(Server, fun() -> lcnt:conflicts(Print(true, [])) end),
    check("classes", sums([{name(Name), integers(Of)} || [Name | Of] <- Combined]), OfClasses),
    check("contended", OfClasses, fun(#{<<"db_tab">> := [_, Collisions, _]}) -> Collisions > 0 end),
    %% Each lock that has a name.
    Single = printed(Server, fun() -> lcnt:conflicts(Print(false, [id])) end),
    Printed = [{name(Name), integers([T, C, Us])} || [Name, T, C, Us, _ | _] <- Single],
    Told = [{Class, sum([numbers(Place) || Place <- Places])} || {Class, _, _, 1, Places} <- Rows],
    check("locks", lists:sort(taken(Printed)), lists:sort(taken(Told))),
    %% Each place of each class.
    [begin
         Options = [{combine, true}, {locations, true} | everything()],
         Lines = printed(Server, fun() -> lcnt:inspect(binary_to_atom(Class, utf8), Options) end),
         Of = sums([{{File, Line}, numbers(Place)} || {C, _, _, Ps} <- Classes, C =:= Class, {File, Line, _, _, _, _, _} = Place <- Ps]),
         check({"places of", Class}, sums([{place(Place), integers([T, C, Us])} || [Place, T, C, _, Us | _] <- Lines]), Of)
     end || Class <- maps:keys(OfClasses)],
    %% Whatever is told of single locks, with what is left of their names it is what all of these have.
    [[_ | Slots]] = printed(Server, fun() -> lcnt:inspect({db_hash_slot, fine}, Print(true, [])) end),
    [begin
         #{rows := Fewer} = Source:summed(Top, Snapshot),
         Of = sum([numbers(Place) || {<<"db_hash_slot">>, _, fine, _, Places} <- Fewer, Place <- Places]),
         check({"slots", Top}, Of =:= [] orelse Of =:= integers(Slots), true)
     end || Top <- [1, 2, 20, 50, 2000]],
    stop_lcnt(Server),
    [call(Target, stop, [T]) || T <- Tables].

%% The agent's source, all of it exported.
as_source() ->
    {ok, Module, Beam} = compile:file(os:getenv("AGENT_SOURCE"),
                                      [binary, export_all, nowarn_export_all, {d, 'AGENT_NAME', agent_as_source}]),
    {module, Module} = code:load_binary(Module, "agent_as_source", Beam),
    Module.

everything() -> [{max_locks, none}, {thresholds, [{tries, -1}, {colls, -1}, {time, -1}]}].

numbers({_, _, Tries, Collisions, Us, _, _}) -> [Tries, Collisions, Us].

name(Text) -> iolist_to_binary(string:replace(Text, "'", "", all)).

place(Text) ->
    [File, Line] = string:split(Text, ":", trailing),
    {case name(File) of <<"undefined">> -> undefined; Name -> Name end, list_to_integer(Line)}.

integers(Texts) -> [list_to_integer(Text) || Text <- Texts].

sum([]) -> [];
sum([First | Rest]) -> lists:foldl(fun(A, B) -> lists:zipwith(fun(X, Y) -> X + Y end, A, B) end, First, Rest).

%% By key, without those of which all is 0.
sums(Pairs) ->
    maps:from_list(taken([{Key, sum([N || {K, N} <- Pairs, K =:= Key])} || Key <- lists:usort([K || {K, _} <- Pairs])])).

taken(Pairs) -> [Pair || {_, Numbers} = Pair <- Pairs, lists:sum(Numbers) > 0].

%% lcnt prints to the group leader of who has started it.
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

%% The lines of numbers that lcnt prints in it, as words.
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

%%% Who ends what, and when ----------------------------------------------------------------------------------------

%% What two files of a made-up control group say; no node is asked.
groups_left(_) ->
    Source = as_source(),
    check("folders", [<<"/m/a:b/c">>, <<"/m/a:b">>, <<"/m">>], Source:folders(<<"/m">>, <<"/a:b/c">>)),
    check("outside", [<<"/m">>], Source:folders(<<"/m">>, <<"/../c">>)),
    check("no number", true, lists:all(fun is_integer/1, Source:group_left(<<"9:cpu,memory:/no/such:group">>))),
    check("of something else", [], Source:group_left(<<"1:name=systemd:/a">>)),
    Folder = string:trim(os:cmd("mktemp -d")),
    Path = list_to_binary(Folder),
    Left = fun(Files) ->
               [ok = file:write_file(filename:join(Folder, Name), Text) || {Name, Text} <- Files],
               Source:folders_left([Path], <<"/memory.max">>, <<"/memory.current">>, <<"inactive_file">>)
           end,
    try
        check("none", [], Left([])),
        check("no limit", [], Left([{"memory.max", "max\n"}, {"memory.current", "900\n"}])),
        check("less what is used", [100], Left([{"memory.max", "1000\n"}])),
        check("but for old files", [400], Left([{"memory.stat", "anon 600\ninactive_file 300\nactive_file 5\n"}])),
        check("never below nothing", [0], Left([{"memory.current", "2000\n"}]))
    after
        [file:delete(filename:join(Folder, Name)) || Name <- ["memory.max", "memory.current", "memory.stat"]],
        file:del_dir(Folder)
    end,
    #{available_bytes := Available} = Source:expected_locks([db], ?ALL),
    check({"left here", Available}, is_integer(Available) andalso Available > 0),
    %% What is not counted yet has to be given what it is counted in.
    Bytes = fun(Mask) -> maps:get(bytes, Source:expected_locks([process], Mask)) end,
    check("as they are", Bytes(?ALL) + 5 * 1000 * erlang:system_info(process_count), Bytes(?FEW)).

%% Each of these ends what counts in its own way.
mask_is_put_back(Target) ->
    check("all", ?ALL, mask(Target)),
    Db = #{categories => [<<"db">>], for_ms => 60000},
    Begin = fun() ->
                Agent = join(Target),
                ask(Agent, 1, Db),
                wait(fun() -> mask(Target) =:= [db] end, 10000),
                Agent
            end,
    Back = fun(How) ->
               try wait(fun() -> mask(Target) =:= ?ALL andalso not is_counting(Target) end, 5000)
               catch exit:{waited_in_vain, _, _} -> exit({not_back, How, mask(Target), is_counting(Target)})
               end,
               clean(Target)
           end,
    #{told := ok} = value(locks, agent_client:sample(Begun = join(Target), 1, [{locks, #{categories => [<<"db">>], for_ms => 200}}])),
    check("back when it is told", {?ALL, false}, {mask(Target), is_counting(Target)}),
    {beamtune, left} = agent_client:leave(Begun),
    {beamtune, left} = agent_client:leave(Begin()),
    Back(left),
    #{agent := Agent, session := Session} = Begin(),
    exit(Agent, kill),
    receive {'EXIT', Session, {beamtune, agent_ended, _}} -> ok after 5000 -> exit(session_stays) end,
    Back(agent),
    #{session := Keeper} = Begin(),
    exit(Keeper, kill),
    receive {'EXIT', Keeper, killed} -> ok after 5000 -> exit(session_stays) end,
    Back(keeper),
    Client = apart(fun() -> Begin(), receive after infinity -> ok end end),
    wait(fun() -> mask(Target) =:= [db] end, 10000),
    exit(Client, kill),
    Back(client),
    #{agent := Shared} = Third = Begin(),
    {links, [Collector]} = call(Target, erlang, process_info, [Shared, links]),
    exit(Collector, kill),
    #{items := [{locks, error, _, _, _}]} = answer(1),
    {beamtune, left} = agent_client:leave(Third),
    Back(collector),
    Fourth = Begin(),
    exit(call(Target, erlang, whereis, [beamtune_counts_locks]), kill),
    #{told := lost} = value(locks, answer(1)),
    {beamtune, left} = agent_client:leave(Fourth),
    Back(holder),
    %% And so while the counts are collected, for which there is no dirty scheduler just now.
    #{agent := Late} = Fifth = join(Target),
    ask(Fifth, 1, Db#{for_ms => 1000}),
    wait(fun() -> mask(Target) =:= [db] end, 10000),
    Holder = call(Target, erlang, whereis, [beamtune_counts_locks]),
    Held = {current_function, {agent_client:name(), is_over, 3}},
    wait(fun() -> call(Target, erlang, process_info, [Holder, current_function]) =:= Held end, 10000),
    Dirty = call(Target, erlang, system_info, [dirty_cpu_schedulers]),
    [call(Target, erlang, spawn, [erts_debug, dirty_cpu, [wait, 6000]]) || _ <- lists:seq(1, Dirty)],
    {links, [Counter]} = call(Target, erlang, process_info, [Late, links]),
    %% The agent, the reader, and the one between.
    wait(fun() -> {links, Links} = call(Target, erlang, process_info, [Counter, links]), length(Links) =:= 3 end, 10000),
    exit(Holder, kill),
    #{told := ok, disturbed := false} = value(locks, answer(1)),
    {beamtune, left} = agent_client:leave(Fifth),
    Back(holder_while_collecting).

one_at_a_time(Target) ->
    First = join(Target),
    ask(First, 1, #{for_ms => 3000}),
    wait(fun() -> mask(Target) =:= ?FEW end, 10000),
    Second = apart(fun() ->
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
    check("not begun anew", lists:sum([T || {_, {T, _, _}, _} <- places(Target, db_tab, marked)]), fun(Tries) -> Tries > 900 end),
    %% More than was expected: the process that collects them ends, and nothing else does.
    Slots = call(Target, unnamed_tables, [3000]),
    #{estimate := #{locks := Few}} = value(locks, agent_client:sample(Agent, 2, [{locks, #{estimate => true}}])),
    call(Target, stop, [Slots]),
    #{estimate := #{locks := Fewer}} = value(locks, agent_client:sample(Agent, 3, [{locks, #{estimate => true}}])),
    check({"tables", Few, Fewer}, Few - Fewer >= 6000),
    check("mask", ?ALL, mask(Target)),
    {beamtune, left} = agent_client:leave(Agent),
    call(Target, stop, [Table]).

%% All dirty schedulers are taken, so nothing begins.
too_late(Target) ->
    Dirty = call(Target, erlang, system_info, [dirty_cpu_schedulers]),
    Agent = join(Target),
    agent_client:sample(Agent, 1, [procs]),
    Held = [call(Target, erlang, spawn, [erts_debug, dirty_cpu, [wait, 4000]]) || _ <- lists:seq(1, Dirty)],
    receive after 300 -> ok end,
    #{told := no_answer} = value(locks, agent_client:sample(Agent, 2, [{locks, #{for_ms => 100, limit_ms => 1000}}])),
    wait(fun() -> [] =:= [P || P <- Held, call(Target, erlang, is_process_alive, [P])] end, 20000),
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

%% 100,000 locks, and each is copied nowhere.
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
    %% Those of so many are not counted again once they were left out, which is told, and costs no memory.
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
    ask(Agent, 1, #{for_ms => 2000}),
    wait(fun() -> mask(Target) =:= ?FEW end, 10000),
    receive after 500 -> ok end,
    call(Target, erts_debug, lcnt_clear, []),
    #{told := ok, disturbed := true} = value(locks, answer(1)),
    {beamtune, left} = agent_client:leave(Agent),
    check("mask", ?ALL, mask(Target)).

foreign_mask(Target) ->
    Agent = join(Target),
    ask(Agent, 1, #{for_ms => 1000}),
    wait(fun() -> mask(Target) =:= ?FEW end, 10000),
    call(Target, erts_debug, lcnt_control, [mask, [io]]),
    #{told := ok, disturbed := true} = value(locks, answer(1)),
    {beamtune, left} = agent_client:leave(Agent),
    check("mask", [io], mask(Target)),
    call(Target, erts_debug, lcnt_control, [mask, ?ALL]).

only_plain_data(Target) ->
    Agent = join(Target),
    Value = value(locks, agent_client:sample(Agent, 1, [{locks, #{for_ms => 100, top => 2000, categories => [atom_to_binary(C, utf8) || C <- ?ALL]}}])),
    check("told", ok, maps:get(told, Value)),
    plain(Value),
    {beamtune, left} = agent_client:leave(Agent).

plain(Term) when is_map(Term) -> maps:fold(fun(K, V, _) -> true = is_atom(K), plain(V) end, ok, Term);
plain(Term) when is_tuple(Term) -> plain(tuple_to_list(Term));
plain(Term) when is_list(Term) -> lists:foreach(fun plain/1, Term);
plain(Term) when is_integer(Term) -> ok;
plain(Term) when is_binary(Term), byte_size(Term) =< 512 -> check("utf8", Term, unicode:characters_to_binary(Term));
plain(Term) -> check({"unknown atom", Term}, lists:member(Term, [ok, undefined, true, false])).
