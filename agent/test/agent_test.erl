%% @doc Runs the tests of the agent on real nodes of one release; started by run.sh. Each test gets a fresh node. After the test,
%% the node must be in its initial state (?CLEAN) and must not have printed anything.
-module(agent_test).
-export([main/1, tests/0]).

-import(agent_nodes, [check/3, clean/1, printed/1, start/4, stop/1]).

%% {Name, Test}, {Name, Test, Flags} with emulator flags of the node, or {Name, Test, Flags, prints} if the node may print.
tests() ->
    agent_protocol_test:tests() ++ agent_clients_test:tests() ++ agent_switches_test:tests() ++ agent_hard_nodes_test:tests()
        ++ agent_processes_test:tests() ++ agent_files_test:tests() ++ agent_long_test:tests() ++ agent_locks_test:tests().

main([Release, Root, Beams, Word]) ->
    Tests = [T || T <- tests(), string:find(element(1, T), Word) =/= nomatch],
    Failed = lists:sum([run_test(T, Release, Root, Beams) || T <- Tests]),
    io:format("OTP ~s: ~b of ~b tests passed~n", [Release, length(Tests) - Failed, length(Tests)]),
    halt(min(1, Failed)).

run_test({Name, Test}, Release, Root, Beams) -> run_test({Name, Test, []}, Release, Root, Beams);
run_test({Name, Test, Flags}, Release, Root, Beams) -> run_test({Name, Test, Flags, silent}, Release, Root, Beams);
run_test({Name, Test, Flags, Prints}, Release, Root, Beams) ->
    Begin = erlang:monotonic_time(millisecond),
    Target = start(Release, Root, Beams, Flags),
    {Pid, Monitor} = spawn_monitor(fun() ->
                                       Test(Target),
                                       clean(Target),
                                       Prints =:= silent andalso check("nothing printed", <<>>, printed(Target))
                                   end),
    Result = receive
                 {'DOWN', Monitor, process, Pid, normal} -> ok;
                 {'DOWN', Monitor, process, Pid, Reason} -> Reason
             after 120000 -> exit(Pid, kill), timeout
             end,
    Ms = erlang:monotonic_time(millisecond) - Begin,
    Text = printed(Target),
    stop(Target),
    case Result of
        ok -> io:format("ok      OTP ~s ~s (~b ms)~n", [Release, Name, Ms]), 0;
        _ -> io:format("FAILED  OTP ~s ~s~n~tp~n~ts~n", [Release, Name, Result, Text]), 1
    end.
