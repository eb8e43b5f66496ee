%% `ran': the call stacks of the busiest processes, and of random running processes, which show work shared by many processes that each
%% do little or live briefly. They are sampled each second and reported with `processes'.

%% Depth of a call stack, and number of processes whose stacks are kept.
-define(STACK_DEPTH, 8).
-define(MAX_STACK_OWNERS, 100).
%% Pause between two random samples on a node that is not quiet: a short recording needs some dozens that find a running process (judgement).
-define(STACKS_PAUSE_NS, 200000000).
%% Random samples end when there was no request for this long.
-define(STACKS_END_NS, 3000000000).
%% Number of processes whose status is read in one random sample, at 0.2 us each, and number of running ones whose stack is read. With 100
%% instead of 400, a node with 800 processes that used half a core gave three samples in 10 s (measured).
-define(STATUS_SAMPLE, 400).
-define(STACK_SAMPLE, 3).
%% Maximum weight of a randomly chosen process, which stands for others: with more, one sample would outweigh all others.
-define(MAX_WEIGHT, 4).
%% Up to this many processes, all are listed for a random sample if there are new ones.
-define(MAX_LISTED, 1000).
%% Cost of a list for each process that the limit allows (0.5 ms of CPU with 262,144, 2 ms with 1,048,576: measured, OTP 23 to 29),
%% and the share of a core that lists may take (judgement). The duration of listing is less reliable, since others may use the CPU.
-define(LISTING_NS_PER_PLACE, 2).
-define(LISTING_PPM, 3000).
%% Number of distinct places kept, and reported.
-define(WORK_KNOWN, 200).
-define(WORK_ROWS, 40).

ran(#state{procs = #procs{most = Most, quiet = Quiet}, ran = Ran, own = Own} = State) ->
    Seen = details(fun at_work/1, Most, State),
    Looked = sample_stacks(listed(State) -- Own, State#state{ran = lists:foldl(fun add_ran/2, Ran, Seen)}),
    Begin = now_ns(),
    {#{sampled => length([P || {P, #{how := ran}} <- Seen])},
     Looked#state{stacks_ns = case Quiet of true -> infinity; false -> Begin + ?STACKS_PAUSE_NS end, stacks_until_ns = Begin + ?STACKS_END_NS}}.

%% A sample of the processes that were active since the last round of `procs'; all processes if there are new ones, since few of these live
%% until the next sample.
listed(#state{procs = #procs{new = New, round = #round{list = List, total = Total}}})
  when New > 0, is_list(List), Total =< ?MAX_LISTED -> List;
listed(#state{procs = #procs{active = {_, Pids}}}) -> Pids.

sample_between(#state{list_again_ns = ListAgain, own = Own, procs = #procs{new = New}} = State) ->
    Begin = now_ns(),
    Next = Begin + ?STACKS_PAUSE_NS,
    Again = State#state{stacks_ns = case Next < State#state.stacks_until_ns of true -> Next; false -> infinity end, deadline_ns = Begin},
    case New > 0 andalso Begin >= ListAgain andalso erlang:system_info(process_count) =< ?MAX_LISTED of
        true ->
            Rest = erlang:system_info(process_limit) * ?LISTING_NS_PER_PLACE * 1000000 div ?LISTING_PPM,
            sample_stacks(processes() -- Own, Again#state{list_again_ns = Begin + Rest});
        false -> sample_stacks(listed(State) -- Own, Again)
    end.

%% No process is busy on a quiet node.
sample_stacks(_, #state{procs = #procs{quiet = true}} = State) -> State;
sample_stacks(Pids, #state{features = Features, work = Work, procs = #procs{most = Most}} = State) ->
    Others = some(?STATUS_SAMPLE, Pids -- Most),
    %% Each of them stands for several.
    Weight = min(?MAX_WEIGHT, max(1, length(Pids) div max(1, length(Others)))),
    Chosen = Most ++ Others,
    Running = [{P, How} || {P, How} <- lists:zip(Chosen, read_all(fun runs/2, Chosen)), is_atom(How), How =/= waits, How =/= hung],
    Seen = details(fun({Pid, How}) -> work(Pid, How, Features) end, some(?STACK_SAMPLE, Running), State),
    State#state{work = lists:foldl(fun({{Pid, _}, Place}, Map) ->
                                       Looks = case lists:member(Pid, Most) of true -> 1; false -> Weight end,
                                       case Map of
                                           #{Place := Count} -> Map#{Place := Count + Looks};
                                           _ when map_size(Map) < ?WORK_KNOWN -> Map#{Place => Looks};
                                           _ -> Map
                                       end
                                   end, Work, Seen)}.

%% Read from outside.
runs(Pid, _) ->
    case process_info(Pid, status) of
        {_, garbage_collecting} -> collects;
        {_, running} -> ran;
        {_, runnable} -> ready;
        _ -> waits
    end.

%% Identity and call stack. The process answers when it is scheduled out, or when it has finished its work and waits. If it has ended by
%% then, only that is known.
work(Pid, How, Features) ->
    case process_info(Pid, [current_function, current_stacktrace]) of
        [{_, Function}, {_, Stack}] ->
            case identity(Pid, Features) of
                #{call := Call} = Identity ->
                    #{call => Call, name => maps:get(name, Identity, <<>>), how => How, stack => stack(Function, Stack)};
                undefined -> ended()
            end;
        undefined -> ended()
    end.

ended() -> #{call => undefined, name => <<>>, how => ran, stack => []}.

%% Most frequent first.
work_rows(Work) ->
    Rows = lists:sublist(lists:reverse(lists:sort([{Count, Place} || {Place, Count} <- maps:to_list(Work)])), ?WORK_ROWS),
    [{Name, Call, How, Stack, Count} || {Count, #{name := Name, call := Call, how := How, stack := Stack}} <- Rows].

add_ran({Pid, #{how := How, stack := Stack}}, Ran) ->
    Place = {How, Stack},
    case Ran of
        #{Pid := #{Place := Count} = Places} -> Ran#{Pid := Places#{Place := Count + 1}};
        #{Pid := Places} when map_size(Places) < 8 * ?STACKS_PER_PROCESS -> Ran#{Pid := Places#{Place => 1}};
        #{Pid := _} -> Ran;
        _ when map_size(Ran) < ?MAX_STACK_OWNERS -> Ran#{Pid => #{Place => 1}};
        _ -> Ran
    end.

%% The status is read from outside. A server that waits in its main loop is idle.
at_work(Pid) ->
    case process_info(Pid, status) of
        {_, Status} when Status =:= running; Status =:= runnable; Status =:= waiting ->
            case process_info(Pid, [current_function, current_stacktrace]) of
                [{_, _}, {_, Stack}] when Status =:= waiting ->
                    case is_loop(Stack) of
                        true -> undefined;
                        false -> #{how => stood, stack => functions(Stack)}
                    end;
                [{_, Function}, {_, Stack}] -> #{how => ran, stack => stack(Function, Stack)};
                undefined -> undefined
            end;
        _ -> undefined
    end.

%% The innermost functions of a stack, innermost first.
functions(Stack) -> [mfa({M, F, A}) || {M, F, A, _} <- lists:sublist(Stack, ?STACK_DEPTH)].

%% An interrupted BIF is not part of the stack, but is the current function.
stack(Function, Stack) ->
    case functions(Stack) of
        [At | _] = Functions ->
            case mfa(Function) of At -> Functions; Interrupted -> [Interrupted | Functions] end;
        [] -> [mfa(Function)]
    end.
