%% @doc Functions shared by all tests of the agent: starting, calling and stopping target nodes, clients of the agent on them, waiting
%% for conditions, and assertions.
-module(agent_nodes).
-export([start/4, start/5, start_lcnt/3, with_lcnt/2, node_of/1, printed/1, stop/1, call/3, call/4]).
-export([wait/2, settled/1, while_steady/2, agree/4, check/2, check/3, clean/1, clean/2, join/1, join/2, items/1, value/2, spawn_client/1, result/1]).
-export_type([target/0]).

-include("agent_test.hrl").

-type target() :: #target{}.

start(Release, Root, Beams, Flags) -> start(Release, Root, Beams, Flags, "exec").

%% Exec is the shell command that replaces the shell with the node.
start(Release, Root, Beams, Flags, Exec) -> start(Release, Root, Beams, Flags, Exec, "erl").

%% Erlang is the program to start, within the release's root.
start(Release, Root, Beams, Flags, Exec, Erlang) ->
    Node = list_to_atom(lists:concat(["target", Release, "_", os:getpid(), "_", erlang:unique_integer([positive]),
                                      "@127.0.0.1"])),
    Erl = [Erlang, "-noinput", "-name", atom_to_list(Node), "-setcookie", atom_to_list(erlang:get_cookie()), "-pa", Beams
           | Flags],
    %% The shell prints its pid, which becomes that of the node.
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

%% Starts a node of the same release whose emulator counts locks; returns `none' if BEAMTUNE_LCNT_<Release> is not set.
-spec start_lcnt(string(), string(), string()) -> target() | none.
start_lcnt(Release, Root, Beams) ->
    case os:getenv("BEAMTUNE_LCNT_" ++ Release) of
        false -> none;
        Erlang -> start(Release, Root, Beams, [], "exec", Erlang)
    end.

%% Runs a test on a node whose emulator counts locks. That node, too, must be in its initial state afterwards.
-spec with_lcnt(target(), fun((target()) -> term())) -> ok.
with_lcnt(#target{release = Release, root = Root, beams = Beams}, Test) ->
    case start_lcnt(integer_to_list(Release), Root, Beams) of
        none -> io:format("skipped, because BEAMTUNE_LCNT_~b is not set: no erl whose emulator counts locks~n", [Release]);
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

%% Collects the node's output.
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

%% Waits for a condition, and returns how long that took, in milliseconds.
wait(Condition, Ms) -> wait(Condition, Ms, erlang:monotonic_time(millisecond)).

wait(Condition, Ms, Begin) ->
    case Condition() of
        true -> erlang:monotonic_time(millisecond) - Begin;
        false ->
            erlang:monotonic_time(millisecond) - Begin > Ms andalso
                exit({wait_timeout, Ms, process_info(self(), current_stacktrace)}),
            receive after 10 -> wait(Condition, Ms, Begin) end
    end.

%% Reads until two readings, 20 ms apart, are equal.
settled(Read) -> settled(Read, Read(), 500).

settled(_, Last, 0) -> exit({does_not_settle, Last});
settled(Read, Last, Tries) ->
    receive after 20 -> ok end,
    case Read() of
        Last -> Last;
        Other -> settled(Read, Other, Tries - 1)
    end.

%% Returns {gauge, value}: a value that was read while the gauge was the same before and after.
while_steady(Gauge, Read) -> while_steady(Gauge, Read, Gauge(), 200).

while_steady(_, _, Last, 0) -> exit({does_not_hold_still, Last});
while_steady(Gauge, Read, Before, Tries) ->
    Value = Read(),
    case Gauge() of
        Before -> {Before, Value};
        After -> while_steady(Gauge, Read, After, Tries - 1)
    end.

%% Repeats while_steady/2 until Compare(gauge, value) returns two equal terms, {expected, found}. An idle node still allocates and
%% frees a block for a request now and then, which equal gauges before and after do not rule out. If the agent's counts are wrong,
%% they never agree.
agree(What, Gauge, Read, Compare) -> agree(What, Gauge, Read, Compare, 50).

agree(What, Gauge, Read, Compare, Tries) ->
    {Steady, Value} = while_steady(Gauge, Read),
    case Compare(Steady, Value) of
        {Same, Same} -> {Steady, Value};
        {Expected, Found} when Tries =:= 0 -> check(What, Expected, Found);
        _ -> agree(What, Gauge, Read, Compare, Tries - 1)
    end.

check(What, Value, Holds) when is_function(Holds) -> check({What, Value}, Holds(Value));
check(_, Same, Same) -> ok;
check(What, Expected, Found) -> exit({What, {expected, Expected}, {found, Found}}).

check(_, true) -> ok;
check(What, Found) -> exit({What, Found}).

%% Waits until the node is in its initial state. `make safety' measures how long that takes; here, other work uses the host as
%% well.
clean(Target) -> clean(Target, ?CLEAN).

clean(Target, Expected) ->
    State = fun() -> call(Target, state, [agent_client:name()]) end,
    try wait(fun() -> State() =:= Expected end, 20000)
    catch exit:{wait_timeout, _, _} -> exit({not_clean, State()})
    end.

join(#target{node = Node}) -> agent_client:join(Node, #{}).

join(#target{node = Node}, Options) -> agent_client:join(Node, Options).

items(Sample) -> maps:get(items, Sample).

value(Item, Sample) ->
    case lists:keyfind(Item, 1, items(Sample)) of
        {Item, ok, _, _, Value} -> Value;
        Other -> exit({Item, Other})
    end.

%% Runs a function in a separate process, which is a separate client.
spawn_client(Fun) ->
    Self = self(),
    spawn_link(fun() -> Self ! {self(), Fun()} end).

%% Returns the result of the function of spawn_client/1. A caller that has joined traps exits, so a failure arrives as a message.
result(Pid) ->
    receive
        {Pid, Result} -> Result;
        {'EXIT', Pid, Reason} when Reason =/= normal -> exit({client_failed, Reason})
    after 60000 -> exit(no_result)
    end.
