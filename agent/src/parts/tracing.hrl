%% `traces': tracers of processes, and the processes that they trace. Functions are not read: most are not traced, and trace patterns have
%% no effect unless the calling process is traced, too.

%% Number of processes asked in addition to the busiest ones. Each is woken to answer.
-define(TRACED_SAMPLE, 20).
%% Number of trace sessions read, and of tracers reported.
-define(TRACE_SESSIONS, 20).
-define(TRACERS, 20).
%% The session of erlang:trace/3, the only one before OTP 27; since then only erlang:trace_info/2 reads it.
-define(ONLY_SESSION, {legacy, default}).

traces(#state{procs = #procs{most = Most, quiet = Quiet}, own = Own} = State) ->
    Sessions = trace_sessions(),
    Others = case Quiet of
                 %% An idle process is rarely traced unless all are, which the flags of new processes show.
                 true -> [];
                 false -> some(?TRACED_SAMPLE, listed(State) -- Own) -- Most
             end,
    Read = details(fun(Pid) -> #{traces => traces_of(Pid, Sessions)} end, Most ++ Others, State),
    New = lists:append([trace(S, What) || S <- Sessions, What <- [new_processes, new_ports]]),
    Sampled = lists:append([Traces || {_, #{traces := Traces}} <- Read]),
    Counted = lists:foldl(fun add_trace/2, #{}, [{traced, T} || T <- Sampled] ++ [{new, T} || T <- New]),
    Rows = lists:sublist(lists:reverse(lists:keysort(3, [{Tracer, Name, Traced, IsNew, lists:usort(Flags)}
                                                        || {{Tracer, Name}, {Traced, IsNew, Flags}} <- maps:to_list(Counted)])), ?TRACERS),
    Pids = [Pid || {Pid, _, _, _, _} <- Rows, is_pid(Pid), node(Pid) =:= node()],
    {#{sampled => length(Read), sessions => length(Sessions),
       rows => [#{tracer => tracer(Tracer), session => Name, traced => Traced, new => IsNew, flags => Flags} || {Tracer, Name, Traced, IsNew, Flags} <- Rows]},
     State#state{tracers = Pids}}.

add_trace({How, {Tracer, Name, Flags}}, Counted) ->
    {Traced, IsNew, Known} = maps:get({Tracer, Name}, Counted, {0, false, []}),
    Counted#{{Tracer, Name} => case How of
                                   traced -> {Traced + 1, IsNew, Flags ++ Known};
                                   new -> {Traced, true, Flags ++ Known}
                               end}.

%% Since OTP 27 there are several sessions; they are read with the BIFs behind trace:info/3 and trace:session_info/1, since that
%% module might not be loaded yet.
trace_sessions() ->
    try erts_internal:trace_info(any, any, session) of
        {session, Sessions} -> lists:sublist(Sessions, ?TRACE_SESSIONS)
    catch error:_ -> [?ONLY_SESSION]
    end.

trace_info(?ONLY_SESSION, What, Item) -> erlang:trace_info(What, Item);
trace_info(Session, What, Item) -> erts_internal:trace_info(Session, What, Item).

%% In the reader. Most processes are in no session, and so are woken only once.
traces_of(Pid, [?ONLY_SESSION]) -> trace(?ONLY_SESSION, Pid);
traces_of(Pid, _) ->
    case erts_internal:trace_info(any, Pid, session) of
        {session, Sessions} -> lists:append([trace(S, Pid) || S <- lists:sublist(Sessions, ?TRACE_SESSIONS)]);
        undefined -> []
    end.

%% [{tracer, name of the session, flags}]; empty if not traced.
trace(Session, What) ->
    try trace_info(Session, What, flags) of
        {flags, [_ | _] = Flags} ->
            case trace_info(Session, What, tracer) of
                {tracer, Tracer} when is_pid(Tracer); is_port(Tracer) -> [{Tracer, session_name(Session), Flags}];
                {tracer, {Module, State}} when is_atom(Module) -> [{module_tracer(Module, State), session_name(Session), Flags}];
                {tracer, Module, State} when is_atom(Module) -> [{module_tracer(Module, State), session_name(Session), Flags}];
                _ -> []
            end;
        _ -> []
    catch error:_ -> []
    end.

module_tracer(_, State) when is_pid(State); is_port(State) -> State;
module_tracer(Module, _) -> Module.

tracer(Pid) when is_pid(Pid); is_port(Pid) -> id(Pid);
tracer(Module) -> bin(Module).

session_name(?ONLY_SESSION) -> <<>>;
session_name({Name, _}) when is_atom(Name) -> bin(Name);
session_name(_) -> <<>>.
