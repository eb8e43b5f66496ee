%% Shared functions of all labs: the seed and what is drawn from it, the lifetime of the VM, and the
%% line that reports that the pathology is established.
%%
%% A lab's module calls run/2 from its start/1 and exports establish/1, which starts the workload
%% and returns when its condition is established:
%%
%%   #{sick => Name | Pid | [Name | Pid] | none, details => #{atom() => Value}, driver => Control (if it has one)}
%%
%% Everything that a rule could be fitted to (names, rates, sizes, which element is the sick one) is
%% drawn here. A draw depends only on the seed, the part and the key, so it is the same on every
%% release and independent of other draws; a parameter "key=N" on the command line replaces the
%% number drawn for that key.
%%
%% Depends only on kernel and stdlib, and runs on OTP 23.
-module(lab).

-export([run/2, drive/2]).
-export([part/2, both/3, all/2, sick/1, culprit/2, int/4, cores/1, demand/4, pick/3, name/2, names/3, shuffle/3]).
-export([start/1, start/2, server/3, table/1, at_rate/2, forever/1, pause/1, wait_until/2]).
-export([calibrate/0, work/2, load/4]).
-export([counter/0, count/1, total/1, per_second/2]).
-export([binary/1, allocated/1]).
-export([await_driver/0, send/2, recv/1]).

-define(LIFE_S, 600).
-define(ESTABLISHED_WITHIN_MS, 120000).
-define(WATCH_EVERY_MS, 2000).
-define(TICK_MS, 20).

%%% The lab's life ----------------------------------------------------------------------------

%% Args are strings, as erl's -run passes them: the seed, "sick" or "cured", then "key=N" …. for_s=N
%% limits the lifetime, in seconds.
run(Module, Args) ->
    Context = context(Args),
    guarded(Context, fun() ->
        %% Loads the code that printing needs in advance, because a sick node may be slow to load
        %% code.
        _ = ready_line(Context, #{sick => none, details => #{loaded => {list, [true]}}}),
        io:put_chars(""),
        Established = Module:establish(Context),
        io:put_chars(ready_line(Context, Established)),
        Established
    end).

%% The same for the second VM of a lab that has a driver. The first one listens on the parameter
%% "port"; when it exits, it closes the control connection, which terminates the driver.
drive(Module, Args) ->
    #{params := #{port := Port}} = Context = context(Args),
    guarded(Context, fun() ->
        {ok, Control} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {packet, 4}, {active, false}]),
        Module:drive(Context, Control),
        #{driver => Control}
    end).

context(Args) ->
    try
        parse(Args)
    catch
        error:_ -> fail("expected SEED sick|cured [key=N ...], got: ~s", [lists:join(" ", Args)])
    end.

parse([Seed, Setting | Pairs]) ->
    #{
        seed => list_to_integer(Seed),
        sick => is_sick(Setting),
        part => main,
        params => maps:from_list([pair(Pair) || Pair <- Pairs])
    }.

is_sick("sick") -> true;
is_sick("cured") -> false.

pair(Text) ->
    [Key, Value] = string:split(Text, "="),
    {list_to_atom(Key), list_to_integer(Value)}.

%% The VM exits after its lifetime, with the process that started it, and with the first error of
%% its own: it must not stay on the host, and a lab whose condition is not established must not look
%% as if it were.
guarded(#{params := Params}, Body) ->
    spawn(fun() ->
        Guard = self(),
        Parent = parent_pid(),
        spawn_monitor(fun() ->
            #{} = Established = Body(),
            Guard ! established,
            %% Frees the garbage of establishing the condition.
            erlang:garbage_collect(),
            stay(Established)
        end),
        erlang:send_after(maps:get(for_s, Params, ?LIFE_S) * 1000, self(), time_is_up),
        erlang:send_after(?ESTABLISHED_WITHIN_MS, self(), must_be_established),
        erlang:send_after(?WATCH_EVERY_MS, self(), watch),
        guard(Parent, false)
    end).

stay(#{driver := Control}) ->
    ok = inet:setopts(Control, [{active, true}]),
    receive
        {tcp_closed, Control} -> end_quietly()
    end;
stay(#{}) ->
    receive
        %% The workload is linked to this process, which lives as long as the lab.
        never -> ok
    end.

guard(Parent, Established) ->
    receive
        established ->
            guard(Parent, true);
        must_be_established when not Established ->
            fail("condition not established within ~b s", [?ESTABLISHED_WITHIN_MS div 1000]);
        {'DOWN', _, process, _, Reason} ->
            fail("~tp", [Reason]);
        time_is_up ->
            end_quietly();
        watch ->
            parent_pid() =:= Parent orelse end_quietly(),
            erlang:send_after(?WATCH_EVERY_MS, self(), watch),
            guard(Parent, Established);
        _ ->
            guard(Parent, Established)
    end.

fail(Format, Values) ->
    io:put_chars(standard_error, ["lab failed: ", io_lib:format(Format, Values), "\n"]),
    erlang:halt(1).

%% Does not flush: output may be blocked, and none of it matters.
end_quietly() ->
    erlang:halt(0, [{flush, false}]).

%% The fourth field of /proc/self/stat; the second one, in parentheses, may contain spaces. Raw,
%% that is, in this process, because the file server may be what a lab keeps busy.
parent_pid() ->
    case file:open("/proc/self/stat", [read, raw, binary]) of
        {ok, File} ->
            {ok, Stat} = file:read(File, 1024),
            ok = file:close(File),
            [_, Rest] = string:split(Stat, <<") ">>, trailing),
            [_State, Parent | _] = binary:split(Rest, <<" ">>, [global]),
            binary_to_integer(Parent);
        {error, _} ->
            unknown
    end.

%%% The ready line ----------------------------------------------------------------------------

ready_line(#{seed := Seed, sick := Sick}, #{sick := Element, details := Details}) ->
    Setting = case Sick of true -> "sick"; false -> "cured" end,
    io_lib:format("lab ready seed=~b node=~s setting=~s sick=~ts details=~ts~n", [
        Seed, node(), Setting, text(Element), json(Details)
    ]).

text(none) -> "-";
text(Elements) when is_list(Elements) -> lists:join($,, [text(Element) || Element <- Elements]);
text(Pid) when is_pid(Pid) -> pid_to_list(Pid);
text(Name) when is_atom(Name) -> atom_to_list(Name).

json(Map) when is_map(Map) ->
    Members = [[json(atom_to_list(Key)), $:, json(Value)] || {Key, Value} <- lists:sort(maps:to_list(Map))],
    [${, lists:join($,, Members), $}];
json({list, Values}) -> [$[, lists:join($,, [json(Value) || Value <- Values]), $]];
json(Value) when is_boolean(Value) -> atom_to_list(Value);
json(none) -> "null";
json(Value) when is_integer(Value) -> integer_to_list(Value);
json(Value) when is_atom(Value) -> json(atom_to_list(Value));
json(Value) when is_pid(Value) -> json(pid_to_list(Value));
%% Only names of labs and of OTP, which need no escaping.
json(Text) -> [$", Text, $"].

%%% Drawing -----------------------------------------------------------------------------------

%% A part of a lab that combines several: the same seed, other draws.
part(Context, Part) -> Context#{part := Part}.

%% A lab that combines several. Each names its own sick element; the ready line and the details name
%% all.
both(Context, ModuleA, ModuleB) -> all(Context, [ModuleA, ModuleB]).

all(Context, Modules) ->
    [{_, First} | _] = Parts = [{Module, Module:establish(part(Context, Module))} || Module <- Modules],
    Sick = [Element || {_, #{sick := Element}} <- Parts, Element =/= none],
    First#{
        sick := case Sick of [] -> none; _ -> Sick end,
        details := maps:from_list([{sick, {list, Sick}} | [{Module, Details} || {Module, #{details := Details}} <- Parts]])
    }.

sick(#{sick := Sick}) -> Sick.

%% The element that a diagnosis should name: none, when healthy.
culprit(#{sick := true}, Element) -> Element;
culprit(#{sick := false}, _) -> none.

int(#{params := Params} = Context, Key, Low, High) ->
    case Params of
        #{Key := Given} -> Given;
        #{} -> Low + drawn(Context, Key, High - Low + 1) - 1
    end.

%% CPUs of the host that it must be sick on, and therefore its number of schedulers where its
%% manifest has two.
cores(Context) -> int(Context, cores, 2, 2).

%% Drawn as by int/4 for two CPUs, and scaled to the number of CPUs.
demand(#{params := Params} = Context, Key, Low, High) ->
    case Params of
        #{Key := Given} -> Given;
        #{} -> int(Context, Key, Low, High) * cores(Context) div 2
    end.

pick(Context, Key, List) -> lists:nth(drawn(Context, Key, length(List)), List).

shuffle(Context, Key, List) ->
    Numbered = lists:zip(lists:seq(1, length(List)), List),
    [Element || {_, Element} <- lists:sort([{drawn(Context, {Key, N}, 1 bsl 30), E} || {N, E} <- Numbered])].

name(Context, Key) ->
    [Name] = names(Context, Key, 1),
    Name.

%% Names as in real programs. They are unique within one call; two calls collide once in millions.
names(Context, Key, Count) ->
    [
        list_to_atom(lists:concat([
            pick(Context, {Key, N, first}, first_words()), "_",
            pick(Context, {Key, N, second}, second_words()), "_",
            100 * drawn(Context, {Key, N, number}, 99) + N
        ]))
     || N <- lists:seq(1, Count)
    ].

first_words() ->
    [account, audit, basket, billing, booking, catalog, chat, claim, device, event, feed, file, fleet,
     invoice, job, ledger, mail, map, media, metric, order, parcel, payment, picture, policy, price,
     quote, rate, report, sensor, shift, stock, tenant, ticket, tour, user, vehicle, voucher].

second_words() ->
    [broker, buffer, builder, cache, checker, collector, dispatcher, feeder, gate, handler, hub, index,
     keeper, loader, manager, mapper, monitor, planner, pool, reader, registry, relay, resolver, router,
     sampler, scanner, sender, server, store, syncer, tracker, watcher, worker, writer].

%% 1..Range
drawn(#{seed := Seed, part := Part}, Key, Range) ->
    %% phash2 and exsss return the same on every release and host.
    [A, B, C] = [erlang:phash2({Seed, Part, Key, N}, 1 bsl 32) || N <- [1, 2, 3]],
    {Drawn, _} = rand:uniform_s(Range, rand:seed_s(exsss, {A, B, C})),
    Drawn.

%%% Building blocks ---------------------------------------------------------------------------

%% A process of the workload. It is linked to its parent, so its crash terminates the lab.
start(Fun) -> proc_lib:spawn_link(Fun).

start(none, Fun) -> start(Fun);
start(Name, Fun) ->
    Pid = start(Fun),
    true = register(Name, Pid),
    Pid.

%% A gen_server with a drawn name, or without one in one of four draws, because real culprits may
%% have no name either. Returns the name or pid that a diagnosis should contain, and the pid.
server(#{sick := _} = Context, Key, {Module, Argument}) ->
    Name = name(Context, Key),
    case drawn(Context, {Key, anonymous}, 4) of
        1 ->
            {ok, Pid} = gen_server:start_link(Module, Argument, []),
            {Pid, Pid};
        _ ->
            {ok, Pid} = gen_server:start_link({local, Name}, Module, Argument, []),
            {Name, Pid}
    end.

%% A named public table, owned by a process that does nothing else, so that it outlives the process
%% that fills it.
table(Name) ->
    Asker = self(),
    start(fun() ->
        Name = ets:new(Name, [named_table, public, {read_concurrency, true}]),
        Asker ! made,
        forever(fun() -> pause(60000) end)
    end),
    receive made -> ok end.

%% Calls Fun(N), about 50 times per second, with the number N of events due at PerSecond. A backlog
%% of more than a second (a stopped VM) is dropped.
at_rate(PerSecond, Fun) ->
    at_rate(PerSecond, Fun, erlang:monotonic_time(microsecond), 0).

at_rate(PerSecond, Fun, Began, Done) ->
    Due = (erlang:monotonic_time(microsecond) - Began) * PerSecond div 1000000,
    case Due - Done of
        0 -> ok;
        Missed -> Fun(min(Missed, max(1, PerSecond)))
    end,
    pause(?TICK_MS),
    at_rate(PerSecond, Fun, Began, Due).

forever(Fun) ->
    Fun(),
    forever(Fun).

pause(Ms) ->
    receive
    after Ms -> ok
    end.

wait_until(Condition, Fun) -> wait_until(Condition, Fun, 60000).

wait_until(Condition, _, Left) when Left =< 0 -> exit({never_came_true, Condition});
wait_until(Condition, Fun, Left) ->
    case Fun() of
        true ->
            ok;
        false ->
            pause(50),
            wait_until(Condition, Fun, Left - 50)
    end.

%%% Work that takes CPU time -------------------------------------------------------------------

%% Units of work per millisecond of this CPU: the fastest of many short runs, because a run that was
%% preempted or throttled only takes longer.
calibrate() ->
    Fastest = lists:min([element(1, timer:tc(fun() -> crunch(10000, 0) end)) || _ <- lists:seq(1, 60)]),
    10000 * 1000 div max(1, Fastest).

work(UnitsPerMs, Microseconds) -> crunch(UnitsPerMs * Microseconds div 1000, 0).

%% A process that needs SharePct of a CPU: in each cycle it works, in steps of a millisecond, and
%% then is idle until the next. After a cycle that took too long the next one starts at once;
%% nothing piles up. Counts steps.
load(UnitsPerMs, SharePct, CycleMs, Counter) ->
    Began = erlang:monotonic_time(millisecond),
    lists:foreach(fun(_) -> work(UnitsPerMs, 1000), count(Counter) end, lists:seq(1, CycleMs * SharePct div 100)),
    pause(max(0, Began + CycleMs - erlang:monotonic_time(millisecond))),
    load(UnitsPerMs, SharePct, CycleMs, Counter).

%% Creates no garbage, and takes about 100 ns per one or two reductions, like usual programs.
crunch(0, Sum) -> Sum;
crunch(N, Sum) ->
    crunch(N - 1, erlang:crc32(Sum, <<"a checksum over some sixty-four bytes, that takes its time, say">>)).

%%% Counting -----------------------------------------------------------------------------------

counter() -> counters:new(1, [write_concurrency]).
count(Counter) -> counters:add(Counter, 1, 1).
total(Counter) -> counters:get(Counter, 1).

per_second(Counter, Ms) ->
    Before = total(Counter),
    Began = erlang:monotonic_time(microsecond),
    pause(Ms),
    (total(Counter) - Before) * 1000000 div (erlang:monotonic_time(microsecond) - Began).

%%% Memory -------------------------------------------------------------------------------------

%% A binary of its own of this size, rounded up to 64 bytes, all of them written. Copied in blocks,
%% because writing single bytes takes many times as long.
binary(Bytes) -> binary:copy(<<1:512>>, (Bytes + 63) div 64).

%% Bytes of an allocator, over all of its instances and including its carriers in the pool: blocks
%% in use, and the carriers that contain them. On OTP 22 and 23 all allocators share the pool, so a
%% carrier may contain blocks of others.
allocated(Allocator) ->
    Kinds = [
        Kind
     || {instance, _, Info} <- erlang:system_info({allocator_sizes, Allocator}),
        {Name, Kind} <- Info, lists:member(Name, [mbcs, mbcs_pool, sbcs])
    ],
    Blocks = [element(2, lists:keyfind(size, 1, Sizes)) || Kind <- Kinds, {blocks, Of} <- Kind, {_, Sizes} <- Of],
    Carriers = [element(2, lists:keyfind(carriers_size, 1, Kind)) || Kind <- Kinds],
    #{blocks => lists:sum(Blocks), carriers => lists:sum(Carriers)}.

%%% The second VM ------------------------------------------------------------------------------

%% Asks the runner to start the driver, and waits for it to connect.
await_driver() ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    io:format("lab driver port=~b~n", [Port]),
    {ok, Control} = gen_tcp:accept(Listen, 60000),
    ok = gen_tcp:close(Listen),
    Control.

send(Control, Term) -> ok = gen_tcp:send(Control, term_to_binary(Term)).

recv(Control) ->
    {ok, Packet} = gen_tcp:recv(Control, 0, 60000),
    binary_to_term(Packet, [safe]).
