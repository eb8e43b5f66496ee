%% `ran': the call stacks of the processes that did the most. They are sampled each second and reported with `processes'.

%% How deep a call stack is read, and how many processes are remembered.
-define(STAND_DEPTH, 8).
-define(RAN_KNOWN, 100).

ran(#state{procs = #procs{most = Most}, ran = Ran} = State) ->
    Seen = details(fun at_work/1, Most, State),
    {#{sampled => length([P || {P, #{how := ran}} <- Seen])}, State#state{ran = lists:foldl(fun add_ran/2, Ran, Seen)}}.

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
