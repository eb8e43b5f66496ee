%% `ran': the call stacks of the processes that did the most, and of any that run when they are looked at by chance: what many do together,
%% none of which does much, or lives long. They are sampled each second and reported with `processes'.

%% How deep a call stack is read, and how many processes are remembered.
-define(STAND_DEPTH, 8).
-define(RAN_KNOWN, 100).
%% The pause between two looks by chance at a node that is not quiet: a short recording needs some dozens of looks that see somebody (judgement).
-define(LOOK_PAUSE_NS, 200000000).
%% After so long without a request nobody asks any more.
-define(LOOKS_END_NS, 3000000000).
%% How many processes are asked in a look whether they run, at 0.2 us each, and of how many of those that do the stack is read. With 100,
%% a node with 800 processes that used half a core gave three samples in 10 s (measured).
-define(LOOKED_AT, 400).
%% For so many others one that was chosen by chance may stand: more, and one look would outweigh all others.
-define(MOST_WEIGHT, 4).
-define(SEEN_AT_WORK, 3).
%% Up to this many processes, new ones are listed for a look in between.
-define(LISTED_FOR_LOOK, 1000).
%% What a list costs for each process that the limit allows (0.5 ms of CPU with 262,144, 2 ms with 1,048,576: measured, OTP 23 to 29),
%% and the share of a core that lists may take (judgement). The time that a list takes says less: others may use the CPU meanwhile.
-define(LISTING_NS_PER_PLACE, 2).
-define(LISTING_PPM, 3000).
%% How many kinds of places are remembered, and reported.
-define(WORK_KNOWN, 200).
-define(WORK_ROWS, 40).

ran(#state{procs = #procs{most = Most, quiet = Quiet}, ran = Ran, own = Own} = State) ->
    Seen = details(fun at_work/1, Most, State),
    Looked = look_by_chance(listed(State) -- Own, State#state{ran = lists:foldl(fun add_ran/2, Ran, Seen)}),
    Begin = now_ns(),
    {#{sampled => length([P || {P, #{how := ran}} <- Seen])},
     Looked#state{look_ns = case Quiet of true -> infinity; false -> Begin + ?LOOK_PAUSE_NS end, look_until_ns = Begin + ?LOOKS_END_NS}}.

%% Some of those that have done something since the round before of `procs'; where there are new ones, of all, as few of these live until
%% the next sample.
listed(#state{procs = #procs{new = New, round = #round{list = List, total = Total}}})
  when New > 0, is_list(List), Total =< ?LISTED_FOR_LOOK -> List;
listed(#state{procs = #procs{active = {_, Pids}}}) -> Pids.

look_between(#state{list_again_ns = ListAgain, own = Own, procs = #procs{new = New}} = State) ->
    Begin = now_ns(),
    Next = Begin + ?LOOK_PAUSE_NS,
    Again = State#state{look_ns = case Next < State#state.look_until_ns of true -> Next; false -> infinity end, deadline_ns = Begin},
    case New > 0 andalso Begin >= ListAgain andalso erlang:system_info(process_count) =< ?LISTED_FOR_LOOK of
        true ->
            Rest = erlang:system_info(process_limit) * ?LISTING_NS_PER_PLACE * 1000000 div ?LISTING_PPM,
            look_by_chance(processes() -- Own, Again#state{list_again_ns = Begin + Rest});
        false -> look_by_chance(listed(State) -- Own, Again)
    end.

%% Nobody is busy on a quiet node.
look_by_chance(_, #state{procs = #procs{quiet = true}} = State) -> State;
look_by_chance(Pids, #state{features = Features, work = Work, procs = #procs{most = Most}} = State) ->
    Others = some(?LOOKED_AT, Pids -- Most),
    %% One of them stands for several.
    Weight = min(?MOST_WEIGHT, max(1, length(Pids) div max(1, length(Others)))),
    Chosen = Most ++ Others,
    Running = [{P, How} || {P, How} <- lists:zip(Chosen, read_all(fun runs/2, Chosen)), is_atom(How), How =/= waits, How =/= hung],
    Seen = details(fun({Pid, How}) -> work(Pid, How, Features) end, some(?SEEN_AT_WORK, Running), State),
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

%% What it is, and where it was. It answers when it lets others run, or when it has done its work and waits. Of one that has ended by then,
%% only that is known.
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
told_work(Work) ->
    Rows = lists:sublist(lists:reverse(lists:sort([{Count, Place} || {Place, Count} <- maps:to_list(Work)])), ?WORK_ROWS),
    [{Name, Call, How, Stack, Count} || {Count, #{name := Name, call := Call, how := How, stack := Stack}} <- Rows].

add_ran({Pid, #{how := How, stack := Stack}}, Ran) ->
    Place = {How, Stack},
    case Ran of
        #{Pid := #{Place := Count} = Places} -> Ran#{Pid := Places#{Place := Count + 1}};
        #{Pid := Places} when map_size(Places) < 8 * ?RAN_STACKS -> Ran#{Pid := Places#{Place => 1}};
        #{Pid := _} -> Ran;
        _ when map_size(Ran) < ?RAN_KNOWN -> Ran#{Pid => #{Place => 1}};
        _ -> Ran
    end.

%% The status is read from outside. A server that waits in its loop has nothing to do.
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

%% Of the stack at most so many functions, the innermost first.
functions(Stack) -> [mfa({M, F, A}) || {M, F, A, _} <- lists:sublist(Stack, ?STAND_DEPTH)].

%% A function of the VM's own that was interrupted is not on it.
stack(Function, Stack) ->
    case functions(Stack) of
        [At | _] = Functions ->
            case mfa(Function) of At -> Functions; Interrupted -> [Interrupted | Functions] end;
        [] -> [mfa(Function)]
    end.
