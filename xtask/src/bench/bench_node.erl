%% The node that is measured, and the one that runs etop. Both are driven by lines on standard input, and
%% end with it, so that none outlives the benchmark however that ends.
-module(bench_node).

-export([target/1, etop/1]).

%% Processes that wait, tables and ports that nobody touches, workers that do the same again and again, and
%% a socket that sends back what it gets. Between "begin" and "end" it measures: without workers how many schedulers
%% were active in the mean, with workers the units of work per second.
target(Arguments) ->
    [Processes, Tables, Ports, Workers, Megabytes] = [list_to_integer(Argument) || Argument <- Arguments],
    spawn(fun() ->
        process_flag(priority, high),
        [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, Processes)],
        [table(N) || N <- lists:seq(1, Tables)],
        %% Not opened any further, so that there can be more of them than file descriptors.
        [open_port({spawn_driver, "udp_inet"}, []) || _ <- lists:seq(1, Ports)],
        hold(Megabytes),
        Meter =
            case Workers of
                0 ->
                    %% Somebody has to have it on in either case, so what it costs is left out here.
                    erlang:system_flag(scheduler_wall_time, true),
                    fun() -> lists:sort(erlang:statistics(scheduler_wall_time_all)) end;
                _ ->
                    Counters = [worker() || _ <- lists:seq(1, Workers)],
                    fun() -> lists:sum([counters:get(Counter, 1) || Counter <- Counters]) end
            end,
        Version = [erlang:system_info(Key) || Key <- [otp_release, version]],
        io:format("bench ready ~w OTP ~s (erts ~s)~n", [answering() | Version]),
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
            wait_until_left(),
            io:format("bench left~n"),
            serve(Meter, Began);
        _ ->
            erlang:halt(0, [{flush, false}])
    end.

%% One among many.
spin() -> spin().

%% Who cleans up after the agent has its name until all of it is gone, or is to stay.
wait_until_left() ->
    case [Name || Name <- registered(), lists:prefix("beamtune_agent_", atom_to_list(Name))] of
        [] -> ok;
        _ -> timer:sleep(100), wait_until_left()
    end.

%% The number of a TCP port where an ordinary process sends back what comes.
answering() ->
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
    %% The unit of these times is the VM's own: only their quotients say something.
    lists:sum([
        (Active - Active0) / (Total - Total0)
     || {{Id, Active0, Total0}, {Id, Active, Total}} <- lists:zip(Rows0, Rows), Total > Total0
    ]).

%% Binaries of 1 to 16 kB, made by a process on each scheduler, so that each has carriers of its own.
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

%% A unit: computing that makes garbage, reads of a table, and a message there and back.
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

%% etop at its lightest: it traces by default, which costs several times as much.
etop([Node]) ->
    spawn(fun() -> io:get_line(""), erlang:halt(0, [{flush, false}]) end),
    spawn(fun() -> etop:start([{node, list_to_atom(Node)}, {output, text}, {interval, 1}, {tracing, off}]) end).
