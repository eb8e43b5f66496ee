%% @doc Tests reading files of the host: which files the agent reads, how much of them, and that a file that hangs delays nothing
%% else. Run by agent_test.
-module(agent_files_test).
-export([tests/0]).

-include("agent_test.hrl").

-import(agent_nodes, [spawn_client/1, check/2, check/3, clean/1, items/1, join/1, join/2, printed/1, result/1, start/5, stop/1, value/2, wait/2, while_steady/2]).

%% See agent_test:tests/0.
tests() ->
    [{"files_of_the_host_are_returned_unchanged", fun host_files/1},
     {"only_files_listed_in_the_agent_are_read", fun refused_files/1},
     {"files_outside_of_kernel_file_systems_are_not_read", fun foreign_files/1},
     {"a_file_that_hangs_delays_no_other_item", fun hanging_file/1},
     {"with_a_small_budget_threads_are_read_in_turn", fun threads_in_turn/1}].

%% The agent's answer must equal what this process reads from the same files.
host_files(#target{os_pid = OsPid} = Target) ->
    Agent = join(Target),
    Ask = fun(Asks) -> answers(Agent, Asks) end,
    Here = fun(File) -> {ok, Bytes} = file:read_file("/proc/" ++ OsPid ++ "/" ++ File), Bytes end,
    Open = fun() -> length(element(2, file:list_dir_all("/proc/" ++ OsPid ++ "/fd"))) end,
    {Expected, [Limits, Boot, Cut, Link, Missing, {count, Files}, {threads, Known, Threads}]} = while_steady(Open, fun() ->
        Ask([{read, <<"/proc/self/limits">>, 65536}, {read, <<"/proc/sys/kernel/random/boot_id">>, 100},
             {read, <<"/proc/self/limits">>, 10}, {link, <<"/proc/self/ns/cgroup">>},
             {read, <<"/sys/fs/cgroup/beamtune-no-such-group/cpu.max">>, 100}, {count, <<"/proc/self/fd">>}, all_threads])
    end),
    check("limits", {ok, Here("limits")}, Limits),
    check("boot", {ok, <<(element(2, file:read_file("/proc/sys/kernel/random/boot_id")))/binary>>}, Boot),
    check("cut", {cut, binary:part(Here("limits"), 0, 10)}, Cut),
    check("link", {link, list_to_binary(element(2, file:read_link_all("/proc/" ++ OsPid ++ "/ns/cgroup")))}, Link),
    check("missing", {error, enoent}, Missing),
    %% The number of open files may include the folder that the agent is reading.
    check("open files", Files, fun(N) -> abs(N - Expected) =< 1 end),
    {ok, Tids} = file:list_dir("/proc/" ++ OsPid ++ "/task"),
    check("threads", lists:sort([list_to_integer(T) || T <- Tids]), Known),
    %% The number of threads per answer depends on the CPU time that the host gives us. The other threads are in the next answers.
    check("next", lists:sublist(Known, length(Threads)), [T || {T, _, _, _} <- Threads]),
    wait(fun() ->
             [{threads, Known, More}] = Ask([all_threads]),
             put(seen, lists:usort([T || {T, _, _, _} <- More] ++ case get(seen) of undefined -> []; Seen -> Seen end)),
             get(seen) =:= Known
         end, 10000),
    [begin
         check("stat", binary:split(Stat, <<" ">>), fun([First, _]) -> First =:= integer_to_binary(Tid) end),
         check("schedstat", binary:split(Waited, <<" ">>, [global]), fun(Fields) -> length(Fields) =:= 3 end),
         check("end of status", binary:match(End, <<"nonvoluntary_ctxt_switches:">>), fun(Found) -> Found =/= nomatch end)
     end || {Tid, Stat, Waited, End} <- Threads],
    check("too many", error, element(2, lists:keyfind(host, 1, items(agent_client:sample(Agent, 2, [{host, #{ask => lists:duplicate(129, threads)}}]))))),
    %% The total size is limited, whatever is requested.
    Bytes = lists:sum([byte_size(B) || {_, B} <- Ask(lists:duplicate(128, {read, <<"/proc/self/smaps_rollup">>, 1 bsl 40})), is_binary(B)]),
    check("bytes", Bytes, fun(N) -> N > 0 andalso N < 1048576 + 262144 end),
    {beamtune, left} = agent_client:leave(Agent).

answers(Agent, Asks) ->
    Answers = maps:get(told, value(host, agent_client:sample(Agent, 1, [{host, #{ask => Asks}}]))),
    check("number of answers", length(Asks), length(Answers)),
    Answers.

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
    [check(Ask, {error, refused}, Answer) || {Ask, Answer} <- lists:zip(Asks, answers(Agent, Asks))],
    {host, error, _, _, _} = lists:keyfind(host, 1, items(agent_client:sample(Agent, 2, [host]))),
    {host, error, _, _, _} = lists:keyfind(host, 1, items(agent_client:sample(Agent, 3, [{host, #{ask => [foo | bar]}}]))),
    {beamtune, left} = agent_client:leave(Agent).

%% Files below the control group mount that do not belong to the kernel are not read.
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
                check("refused", [{error, refused} || _ <- Files], answers(Agent, Asks))
            after
                %% In a chroot, this leaves /sys empty, as it was.
                Group = filename:dirname(Real),
                os:cmd("rm -r " ++ Real ++ "; rmdir " ++ Group ++ " " ++ filename:dirname(Group))
            end,
            {beamtune, left} = agent_client:leave(Agent);
        Why -> io:format("skipped, because /sys/fs/cgroup is not writable: ~ts", [Why])
    end.

%% A FIFO is mounted over a kernel file, only in the mount namespace of this node. Opening it blocks until another process writes.
hanging_file(#target{release = Release, root = Root, beams = Beams}) ->
    Top = string:trim(Root, trailing, "/"),
    Fifo = Top ++ Beams ++ "/fifo" ++ integer_to_list(erlang:unique_integer([positive])),
    Mount = "unshare -m --propagation private sh -c 'mount --bind " ++ Fifo ++ " " ++ Top ++ "/proc/pressure/io",
    case os:cmd("mkfifo " ++ Fifo ++ " && " ++ Mount ++ "'") of
        "" ->
            Hanging = start(integer_to_list(Release), Root, Beams, [], "exec " ++ Mount ++ " && exec \"$@\"' sh"),
            try
                hanging_file(Hanging, <<"/proc/pressure/io">>, Fifo),
                clean(Hanging),
                check("nothing printed", <<>>, printed(Hanging))
            after stop(Hanging)
            end;
        Why -> io:format("skipped, because a file of /proc cannot be mounted over: ~ts", [Why])
    end.

hanging_file(Target, Path, Fifo) ->
    #{agent := Pid} = Agent = join(Target),
    Ask = {read, Path, 100},
    Boot = {read, <<"/proc/sys/kernel/random/boot_id">>, 100},
    Sample = fun(Seq) ->
                 S = agent_client:sample(Agent, Seq, [counts, {host, #{ask => [Boot, Ask, threads]}}, memory]),
                 [value(I, S) || I <- [counts, memory]],
                 #{agent := #{restarts := 0}} = S,
                 %% An item that takes 2 s would be aborted.
                 {host, ok, _, Us, _} = lists:keyfind(host, 1, items(S)),
                 check("in time", Us, fun(_) -> Us < 2000000 end),
                 maps:get(told, value(host, S))
             end,
    %% The answers that were read before it hung are lost, too.
    check("slow", [{error, late}, {error, late}, {error, late}], Sample(1)),
    receive after 1100 -> ok end,
    check("hangs", [{error, late}, {error, hung}, {error, late}], Sample(2)),
    %% Another client is not delayed either, and does not start a second read.
    {[{error, late}], {remaining, 1}} = result(spawn_client(fun() ->
                                                         Other = join(Target),
                                                         {answers(Other, [Boot]), agent_client:leave(Other)}
                                                     end)),
    %% A writer lets the read return. From then on, that file is skipped, and all others are read again.
    {ok, Writer} = file:open(Fifo, [write, raw]),
    file:close(Writer),
    wait(fun() -> case Sample(3) of [{ok, _}, {error, hung}, {threads, _, _}] -> true; _ -> false end end, 10000),
    %% The agent can leave while a file hangs: the next client's read hangs again.
    {beamtune, left} = agent_client:leave(Agent),
    Last = join(Target),
    [{error, late}] = answers(Last, [Ask]),
    check("a new agent", Pid =/= maps:get(agent, Last)),
    {beamtune, left} = agent_client:leave(Last),
    %% Lets the read of the killed filer return. Otherwise it would keep occupying a scheduler.
    {ok, Again} = file:open(Fifo, [write, raw]),
    file:close(Again).

threads_in_turn(Target) ->
    Agent = join(Target, #{budget_ppm => 100}),
    [{threads, All, [{First, _, _, _}]}] = answers(Agent, [threads]),
    check("first", hd(All), First),
    Turns = [begin [{threads, All, [{Tid, _, _, _}]}] = answers(Agent, [threads]), Tid end || _ <- All],
    check("each in turn", tl(All) ++ [First], Turns),
    {beamtune, left} = agent_client:leave(Agent).
