%% The measured node, and the node that runs etop. Both are controlled by lines on standard input, and halt when it closes, so that they
%% never outlive the benchmark.
-module(bench_node).

-export([target/1, etop/1]).

%% Starts idle processes, tables, ports, workers that repeat a unit of work, and an echo server. From "begin" to "end" the node measures
%% units of work per second or, without workers, the mean number of active schedulers.
target(Arguments) ->
    [Processes, Tables, Ports, Workers, Megabytes] = [list_to_integer(Argument) || Argument <- Arguments],
    spawn(fun() ->
        process_flag(priority, high),
        [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, Processes)],
        [table(N) || N <- lists:seq(1, Tables)],
        %% These ports have no socket, so that there can be more ports than file descriptors.
        [open_port({spawn_driver, "udp_inet"}, []) || _ <- lists:seq(1, Ports)],
        hold(Megabytes),
        Meter =
            case Workers of
                0 ->
                    %% This is on in all windows, so that its cost cancels out.
                    erlang:system_flag(scheduler_wall_time, true),
                    fun() -> lists:sort(erlang:statistics(scheduler_wall_time_all)) end;
                _ ->
                    Counters = [worker() || _ <- lists:seq(1, Workers)],
                    fun() -> lists:sum([counters:get(Counter, 1) || Counter <- Counters]) end
            end,
        Version = [erlang:system_info(Key) || Key <- [otp_release, version]],
        io:format("bench ready ~w OTP ~s (erts ~s)~n", [echo_server() | Version]),
        serve(Meter, none)
    end).

serve(Meter, Began) ->
    case io:get_line("") of
        "begin\n" ->
            io:format("bench began~n"),
            serve(Meter, read(Meter));
        "end\n" ->
            {Time, Value} = read(Meter),
            {Time0, Value0} = Began,
            io:format("bench measured ~w~n", [rate(Value0, Value, (Time - Time0) / 1.0e9)]),
            serve(Meter, none);
        "heat\n" ->
            io:format("bench heated ~s~n", [pid_to_list(spawn(fun spin/0))]),
            serve(Meter, Began);
        "left\n" ->
            wait_until_unloaded(),
            io:format("bench left~n"),
            serve(Meter, Began);
        _ ->
            erlang:halt(0, [{flush, false}])
    end.

%% Computes in an endless loop: the hot process.
spin() -> spin().

%% The keeper is registered until the agent's module is purged, or remains loaded on purpose (agent/README.md).
wait_until_unloaded() ->
    case [Name || Name <- registered(), lists:prefix("beamtune_agent_", atom_to_list(Name))] of
        [] -> ok;
        _ -> timer:sleep(100), wait_until_unloaded()
    end.

%% Starts the echo server and returns its TCP port.
echo_server() ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {ip, {127, 0, 0, 1}}, {nodelay, true}, {active, true}]),
    Acceptor = spawn(fun() -> receive go -> accept(Listener) end end),
    ok = gen_tcp:controlling_process(Listener, Acceptor),
    Acceptor ! go,
    {ok, Number} = inet:port(Listener),
    Number.

accept(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    answer(Socket),
    accept(Listener).

answer(Socket) ->
    receive
        {tcp, Socket, Data} -> gen_tcp:send(Socket, Data), answer(Socket);
        {tcp_closed, Socket} -> ok
    end.

read(Meter) -> {erlang:monotonic_time(nanosecond), Meter()}.

rate(Units0, Units, Seconds) when is_integer(Units0) -> (Units - Units0) / Seconds;
rate(Rows0, Rows, _) ->
    %% The unit of scheduler wall time is undefined: only ratios are meaningful.
    lists:sum([
        (Active - Active0) / (Total - Total0)
     || {{Id, Active0, Total0}, {Id, Active, Total}} <- lists:zip(Rows0, Rows), Total > Total0
    ]).

%% Creates binaries of 1 to 16 kB in a process on each scheduler, so that each scheduler has carriers.
hold(0) -> ok;
hold(Megabytes) ->
    Schedulers = erlang:system_info(schedulers),
    Each = Megabytes * 1000000 div Schedulers,
    Self = self(),
    Holders = [
        spawn_opt(
            fun() ->
                Held = binaries(Each, N, []),
                Self ! {holds, self()},
                receive never -> Held end
            end,
            [{scheduler, N}]
        )
     || N <- lists:seq(1, Schedulers)
    ],
    [receive {holds, Holder} -> ok end || Holder <- Holders],
    ok.

binaries(Left, _, Held) when Left =< 0 -> Held;
binaries(Left, N, Held) ->
    Size = 1000 + erlang:phash2({N, Left}, 15000),
    binaries(Left - Size, N, [binary:copy(<<N>>, Size) | Held]).

table(N) ->
    Options =
        case N rem 4 of
            0 -> [set, {read_concurrency, true}, {write_concurrency, true}];
            1 -> [ordered_set];
            _ -> [set]
        end,
    ets:insert(ets:new(bench_idle, [public | Options]), [{Key, N} || Key <- lists:seq(1, 20)]).

%% A unit of work: a computation that creates garbage, reads of an ETS table, and a call to another process.
worker() ->
    Counter = counters:new(1, []),
    spawn(fun() ->
        Table = ets:new(bench_read, [public, {read_concurrency, true}]),
        ets:insert(Table, [{Key, lists:seq(1, 10)} || Key <- lists:seq(0, 999)]),
        Echo = spawn_link(fun echo/0),
        work(Counter, Table, Echo, 0)
    end),
    Counter.

work(Counter, Table, Echo, N) ->
    [Least | _] = lists:sort([erlang:phash2({N, K}) || K <- lists:seq(1, 200)]),
    Found = [ets:lookup(Table, (N + K * 37) rem 1000) || K <- lists:seq(1, 50)],
    Echo ! {self(), Least, hd(Found)},
    receive {Echo, _, _} -> ok end,
    counters:add(Counter, 1, 1),
    work(Counter, Table, Echo, N + 1).

echo() ->
    receive {From, Least, Found} -> From ! {self(), Least, Found} end,
    echo().

%% Runs etop without tracing (the default), which would cost several times as much.
etop([Node]) ->
    spawn(fun() -> io:get_line(""), erlang:halt(0, [{flush, false}]) end),
    spawn(fun() -> etop:start([{node, list_to_atom(Node)}, {output, text}, {interval, 1}, {tracing, off}]) end).
