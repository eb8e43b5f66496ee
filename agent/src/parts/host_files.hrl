%% Files of the node's host, for a client on another host: the same that beamtune reads from /proc and control groups on its own host.
%% One process for all clients reads them, because a read may hang and cannot be aborted.

%% Maximum number of files in a request, of bytes of one file and of all, and of threads.
-define(MAX_ASKS, 128).
-define(MAX_FILE_BYTES, 262144).
-define(MAX_FILES_BYTES, 1048576).
-define(MAX_THREADS, 2000).
%% Maximum size reported of a thread's stat and schedstat (some 300 bytes), and of the end of its status.
-define(THREAD_BYTES, 1024).
-define(STATUS_END_BYTES, 300).
%% A read that takes this long hangs; then the file is skipped for ?SKIP_NS.
-define(HANG_NS, 1000000000).
%% Share of the budget for reading threads (percent), and CPU time for each: three files of some 30 us. Any additional time is spent
%% waiting for a CPU.
-define(THREADS_SHARE, 25).
-define(THREAD_NS, 100000).

%% The complete list of readable files, apart from those below the process's own task directory and below the control group mounts.
%% All other files are refused to every client. A process's environment, command line and memory are not among them, nor any
%% other process.
-define(HOST_FILES, [<<"/proc/stat">>, <<"/proc/meminfo">>, <<"/proc/vmstat">>, <<"/proc/cpuinfo">>,
                     <<"/proc/pressure/cpu">>, <<"/proc/pressure/memory">>, <<"/proc/pressure/io">>,
                     <<"/proc/sys/kernel/hostname">>, <<"/proc/sys/kernel/osrelease">>,
                     <<"/proc/sys/kernel/random/boot_id">>,
                     <<"/proc/self/stat">>, <<"/proc/self/status">>, <<"/proc/self/limits">>, <<"/proc/self/cgroup">>,
                     <<"/proc/self/mountinfo">>, <<"/proc/self/smaps_rollup">>]).
%% These may have megabytes: a line for each mount, a page for each CPU. The others are small and read in one call. Opening, reading and
%% closing would be three calls, each of which switches to another scheduler and back (milliseconds if CPUs are scarce). And the VM
%% monitors each open file, by a signal to a process that runs on a dirty scheduler at that moment: the process that handles such
%% signals was the busiest one of an idle node.
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

%% A collector's view of its filer: the unanswered request, since when, and the thread at which to continue.
-record(files, {number = none, asks = [], since_ns, filer, thread = 0}).

%% A read that hangs (a FUSE file system over /proc whose server is stuck, a kernel lock) cannot be aborted: it occupies its
%% process, and one of the VM's dirty I/O schedulers. So a single process reads, which is never replaced while it is alive, and
%% for which nobody waits longer than an item's time limit.
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
                {files, Number, Results} ->
                    {#{told => Results}, State#state{files = answered(next_thread(Results, Asked))}}
            after (State#state.deadline_ns - Now) div 1000000 + ?HANG_CHECK_MS ->
                {#{told => hung(Asks, Asked, Cursor)}, State#state{files = Asked}}
            end
    end.

%% Marks the file that hangs, if it is known and not merely slow, as all reads are on a host short of CPUs; all others are late.
hung(Asks, #files{number = Number, asks = Before, since_ns = Since}, Cursor) ->
    Hanging = case atomics:get(Cursor, 2) =:= Number andalso now_ns() - Since > ?HANG_NS of
                  true -> lists:sublist(Before, max(1, atomics:get(Cursor, 1)), 1);
                  false -> []
              end,
    [{error, case [Ask] of Hanging -> hung; _ -> late end} || Ask <- Asks].

late_answer(Number, #state{files = #files{number = Number} = Files} = State) -> State#state{files = answered(Files)};
late_answer(_, State) -> State.

answered(Files) -> Files#files{number = none, asks = []}.

%% Sets the number of threads to read, and the first one.
with_quota(threads, #files{thread = From}, #state{budget_ppm = Budget, interval_ns = Interval}) ->
    {threads, max(1, Interval * Budget * ?THREADS_SHARE div (100 * 1000000 * ?THREAD_NS)), From};
with_quota(all_threads, #files{thread = From}, _) -> {threads, ?MAX_THREADS, From};
with_quota({threads, _, _}, _, _) -> refused;
with_quota(Ask, _, _) -> Ask.

next_thread(Results, Files) ->
    case [Tid || {threads, _, [_ | _] = Read} <- Results, {Tid, _, _, _} <- [lists:last(Read)]] of
        [] -> Files;
        Tids -> Files#files{thread = lists:last(Tids) + 1}
    end.

%% LeftOut: [{Ask, since when}].
filer(Cursor, LeftOut) ->
    receive
        {files, Collector, Number, Asks, Until} ->
            atomics:put(Cursor, 1, 0),
            atomics:put(Cursor, 2, Number),
            {Results, Slow} = read_files(Asks, 1, Until, ?MAX_FILES_BYTES, Cursor, LeftOut),
            atomics:put(Cursor, 2, 0),
            Collector ! {files, Number, Results},
            Now = now_ns(),
            filer(Cursor, lists:sublist([S || {_, Since} = S <- Slow, Since + ?SKIP_NS > Now], ?MAX_SKIPPED))
    end.

read_files([], _, _, _, _, LeftOut) -> {[], LeftOut};
read_files([Ask | Asks], Index, Until, BytesLeft, Cursor, LeftOut) ->
    atomics:put(Cursor, 1, Index),
    Begin = now_ns(),
    Result = case is_allowed(Ask) of
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
    {Rest, AllSlow} = read_files(Asks, Index + 1, Until, BytesLeft - result_bytes(Result), Cursor, Slow),
    {[Result | Rest], AllSlow}.

result_bytes({_, Bytes}) when is_binary(Bytes) -> byte_size(Bytes);
result_bytes(_) -> 0.

read_ask({read, Path, Most}, _) ->
    Max = min(Most, ?MAX_FILE_BYTES),
    Read = case {lists:member(Path, ?LONG_FILES), lists:member(Path, ?HOST_FILES)} of
               {true, _} -> read_start(Path, Max + 1);
               {false, true} -> prim_file:read_file(Path);
               {false, false} -> read_group_file(Path)
           end,
    case Read of
        {ok, Bytes} when byte_size(Bytes) > Max -> {cut, binary:part(Bytes, 0, Max)};
        Result -> Result
    end;
read_ask({link, Path}, _) ->
    case prim_file:read_link(Path) of
        {ok, Target} -> {link, bin(Target)};
        Error -> Error
    end;
read_ask({count, Path}, _) ->
    %% Since Linux 6.2 the size of /proc/PID/fd is the number of open files; before, it is 0. Counting would need a list of all.
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

%% As many as the time allows, but at least one. A kernel may have no schedstat.
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

%% Kernel files have size 0. Any other file is refused.
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
