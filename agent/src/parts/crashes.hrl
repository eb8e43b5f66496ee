%% `crashes': which processes end with errors, under which parent, and why. One exit monitor for all clients monitors a few processes
%% that are likely to end: children of active supervisors, new holders of registered names, and new processes that `procs' has found.
%% Of the reason it keeps an atom and some functions, never a term of the node.
%%
%% A supervisor without work runs no reductions, which is read from outside. So if nothing ends, no process is asked anything.

%% Maximum number of known registered names and supervisors.
-define(MAX_NAMES, 2000).
-define(MAX_SUPERVISORS, 500).
%% Maximum number of monitored processes, in all and of one parent. Beyond, a process monitored for longer than HELD_MS is replaced by a
%% new one.
-define(MAX_MONITORED, 100).
-define(MAX_CHILDREN, 20).
-define(HELD_MS, 10000).
%% process_info(P, links) walks all links of P, at least 0.05 us for each (measured, OTP 25 and 29). A supervisor has some 20 words on its
%% heap for each child: one with a larger heap than this is not asked.
-define(SUPERVISOR_HEAP_WORDS, 131072).
%% A supervisor that has run this many reductions has started or lost children, or was called. Our own requests cost it less.
-define(WORK_REDUCTIONS, 100).
%% Number of supervisors asked at once, pause between requests, and number of equal answers after which a supervisor is not asked any more.
-define(ASKED_AT_ONCE, 3).
-define(ASK_MS, 25).
-define(UNCHANGED, 20).
%% The exit monitor's work takes at most 1/REST of the time.
-define(REST, 1000).
%% Number of registered processes identified between two rests.
-define(IDENTIFIED_AT_ONCE, 10).
%% Maximum number of distinct exits counted, and of distinct names among those with reason `shutdown'.
-define(MAX_ENDS, 100).
-define(MAX_SHUT_DOWN, 20).
%% Words. An exit reason is copied to the monitoring process and may be of any size: a larger one kills the exit monitor instead of
%% exhausting the node's memory.
-define(REASONS_HEAP_WORDS, 524288).
-define(FRAMES, 3).
-define(REASON_DEPTH, 3).

%% children: those at the last request; `none' before.
-record(supervisor, {title, reductions = 0, children = none, unchanged = 0}).

%% A monitored process. by: {name, call} of its parent, by which its exit is counted; parent: pid of the parent as text.
-record(monitored, {pid, by, parent, title = #{}, heap_limit = 0, is_proc_lib = false, since_ms}).

%% names: last [{Name, Pid}]; parents: Pid => title; monitored: by monitor; ends: counted exits; version: changes with them.
-record(exits, {features, names = none, to_identify = [], supervisors = #{}, active = [], parents = #{}, monitored = #{},
                pids = #{}, ends = #{}, lost = 0, version = 0, timer = none}).

start_exit_monitor(true, #agent{exit_monitor = none} = Agent) ->
    Options = [link, {priority, high}, max_words(?REASONS_HEAP_WORDS)],
    Agent#agent{exit_monitor = spawn_opt(fun() -> exit_monitor(#exits{features = features()}) end, Options)};
start_exit_monitor(_, Agent) -> Agent.

%% Exits since this client's last request.
crashes(#state{exit_monitor = Monitor, ends = {Before, Known}, procs = #procs{fresh = Fresh} = Procs, own = Own} = State)
  when is_pid(Monitor) ->
    Version = case Before of {Monitor, V} -> V; _ -> 0 end,
    Monitor ! {crashes, self(), Version, Fresh -- Own},
    Next = State#state{procs = Procs#procs{fresh = []}},
    receive
        {Monitor, same, Now} -> {Now#{rows => []}, Next};
        {Monitor, New, Ends, Now} ->
            Old = case Before of {Monitor, _} -> Known; _ -> #{} end,
            Rows = [end_row(Key, Count - maps:get(Key, Old, 0), Last) || {Key, {Count, Last}} <- maps:to_list(Ends),
                                                                         Count > maps:get(Key, Old, 0)],
            {Now#{rows => Rows}, Next#state{ends = {{Monitor, New}, maps:map(fun(_, {Count, _}) -> Count end, Ends)}}}
    after ?HANG_CHECK_MS -> error(no_answer)
    end;
crashes(_) -> throw(unsupported).

end_row({{ParentName, ParentCall}, Child, Reason}, Count, {Parent, HeapLimit}) ->
    Row = #{parent => Parent, parent_name => ParentName, parent_call => ParentCall, count => Count, heap_limit_words => HeapLimit},
    maps:merge(maps:merge(Row, Child), Reason).

%%% The exit monitor ------------------------------------------------------------------------------------------

exit_monitor(Exits) ->
    receive
        {crashes, From, Version, Fresh} ->
            #exits{version = Now, ends = Ends} = Exits,
            Known = #{monitored => map_size(Exits#exits.monitored), supervisors => map_size(Exits#exits.supervisors),
                      lost => Exits#exits.lost},
            From ! case Version of Now -> {self(), same, Known}; _ -> {self(), Now, Ends, Known} end,
            exit_monitor(ask_later(0, working(names(lists:foldl(fun new_process/2, Exits, Fresh)))));
        {'DOWN', Monitor, process, _, Reason} -> exit_monitor(has_ended(Monitor, Reason, Exits));
        {timeout, Timer, ask} when Timer =:= Exits#exits.timer ->
            Begin = now_ns(),
            Asked = identify(?IDENTIFIED_AT_ONCE, ask_supervisors(Exits#exits{timer = none})),
            exit_monitor(ask_later((now_ns() - Begin) * ?REST div 1000000, Asked));
        _ -> exit_monitor(Exits)
    end.

ask_later(_, #exits{active = [], to_identify = []} = Exits) -> Exits;
ask_later(Ms, #exits{timer = none} = Exits) -> Exits#exits{timer = erlang:start_timer(max(?ASK_MS, Ms), self(), ask)};
ask_later(_, Exits) -> Exits.

%% Finds names with another holder than before: the former holder has ended, and the new one may end, too.
names(#exits{names = Before} = Exits) ->
    Names = [{Name, Pid} || Name <- lists:sublist(registered(), ?MAX_NAMES), Pid <- [whereis(Name)], is_pid(Pid)],
    case Before of
        Names -> Exits;
        none -> Exits#exits{names = Names, to_identify = [Pid || {_, Pid} <- Names]};
        _ ->
            Old = maps:from_list(Before),
            New = [Pid || {Name, Pid} <- Names, maps:get(Name, Old, none) =/= Pid],
            Held = [Pid || {Name, Pid} <- Names, is_map_key(Name, Old), maps:get(Name, Old) =/= Pid],
            lists:foldl(fun new_process/2, Exits#exits{names = Names, to_identify = New ++ Exits#exits.to_identify},
                        lists:sublist(Held, ?MAX_CHILDREN))
    end.

%% Finds the supervisors among the registered processes.
identify(_, #exits{to_identify = []} = Exits) -> Exits;
identify(0, Exits) -> Exits;
identify(Count, #exits{to_identify = [Pid | Rest]} = Exits) ->
    identify(Count - 1, add_supervisor(Pid, as_supervisor(Pid, Exits), Exits#exits{to_identify = Rest})).

%% The title of a process if it is a supervisor. The initial call is read from outside.
as_supervisor(Pid, #exits{features = Features}) ->
    case process_info(Pid, initial_call) of
        {_, {proc_lib, _, _}} -> supervisor_title(Pid, noted(Pid, Features));
        _ -> none
    end.

supervisor_title(Pid, #{call := {<<"supervisor">>, _, _} = Call} = Noted) ->
    #{pid => id(Pid), name => maps:get(name, Noted, <<>>), call => Call};
supervisor_title(_, _) -> none.

add_supervisor(_, none, Exits) -> Exits;
add_supervisor(Pid, Title, #exits{supervisors = All} = Exits) ->
    case is_map_key(Pid, All) orelse map_size(All) >= ?MAX_SUPERVISORS of
        true -> Exits;
        false ->
            {_, Reductions} = reductions(Pid),
            Exits#exits{supervisors = All#{Pid => #supervisor{title = Title, reductions = Reductions}}}
    end.

reductions(Pid) ->
    case process_info(Pid, reductions) of
        {_, Reductions} -> {reductions, Reductions};
        undefined -> {gone, 0}
    end.

%% Supervisors that were active since the last check will be asked for their children.
working(#exits{supervisors = All, active = Active} = Exits) ->
    maps:fold(fun(Pid, #supervisor{reductions = Before} = Supervisor, #exits{supervisors = Some, active = Others} = Now) ->
                  case lists:member(Pid, Active) orelse reductions(Pid) of
                      true -> Now;
                      {gone, _} -> Now#exits{supervisors = maps:remove(Pid, Some)};
                      {_, Reductions} when Reductions - Before < ?WORK_REDUCTIONS -> Now;
                      {_, _} -> Now#exits{supervisors = Some#{Pid := Supervisor#supervisor{unchanged = 0}}, active = [Pid | Others]}
                  end
              end, Exits, All).

ask_supervisors(#exits{active = Active} = Exits) ->
    {Asked, Later} = lists:split(min(?ASKED_AT_ONCE, length(Active)), Active),
    lists:foldl(fun ask/2, Exits#exits{active = Later}, Asked).

ask(Pid, #exits{supervisors = All} = Exits) ->
    case {All, children(Pid)} of
        {#{Pid := Supervisor}, Children} when is_list(Children) -> asked(Pid, Children, Supervisor, Exits);
        {#{Pid := Supervisor}, large} -> rests(Pid, Supervisor, Exits);
        _ -> Exits#exits{supervisors = maps:remove(Pid, All)}
    end.

asked(Pid, Children, #supervisor{children = Children, unchanged = ?UNCHANGED} = Supervisor, Exits) -> rests(Pid, Supervisor, Exits);
asked(Pid, Children, #supervisor{children = Before, unchanged = Unchanged} = Supervisor, Exits) ->
    #exits{supervisors = All, active = Active} = Exits,
    Now = case Before of Children -> Unchanged + 1; _ -> 0 end,
    Known = Exits#exits{supervisors = All#{Pid := Supervisor#supervisor{children = Children, unchanged = Now}}, active = Active ++ [Pid]},
    %% The youngest first: they may be replacements of children that have ended.
    New = case Before of none -> Children; _ -> ordsets:subtract(Children, Before) end,
    lists:foldl(fun(Child, E) -> new_child(Child, Pid, Supervisor#supervisor.title, E) end, Known,
                lists:sublist(lists:reverse(New), ?MAX_CHILDREN)).

%% The supervisor is idle for now. Its reductions include our own requests.
rests(Pid, Supervisor, #exits{supervisors = All} = Exits) ->
    case reductions(Pid) of
        {gone, _} -> Exits#exits{supervisors = maps:remove(Pid, All)};
        {_, Reductions} -> Exits#exits{supervisors = All#{Pid := Supervisor#supervisor{reductions = Reductions}}}
    end.

%% All processes linked to the supervisor, including its parent and others that have linked to it; `large' if there may be very many.
children(Pid) ->
    case process_info(Pid, garbage_collection_info) of
        undefined -> gone;
        {_, Heaps} ->
            case heap_words(Heaps) > ?SUPERVISOR_HEAP_WORDS orelse process_info(Pid, links) of
                true -> large;
                undefined -> gone;
                {_, Links} -> lists:usort([Child || Child <- Links, is_pid(Child), node(Child) =:= node()])
            end
    end.

new_child(Pid, Parent, Title, #exits{features = Features, pids = Pids} = Exits) ->
    case is_map_key(Pid, Pids) of
        true -> Exits;
        false ->
            %% Before all else, since it may end at once.
            Monitor = monitor(process, Pid),
            case noted(Pid, Features) of
                %% Not a child, but the supervisor's parent, or a process that has linked to it.
                #{parent := Other} when is_pid(Other), Other =/= Parent; is_atom(Other), Other =/= undefined, Parent =/= Other ->
                    case is_atom(Other) andalso whereis(Other) =:= Parent of
                        true -> keep(Monitor, Pid, Title, noted(Pid, Features), Exits);
                        false -> demonitor(Monitor, [flush]), Exits
                    end;
                Noted -> keep(Monitor, Pid, Title, Noted, Exits)
            end
    end.

%% A new process found by `procs', or a new holder of a registered name.
new_process(Pid, #exits{features = Features, pids = Pids} = Exits) ->
    case is_map_key(Pid, Pids) of
        true -> Exits;
        false ->
            Monitor = monitor(process, Pid),
            case noted(Pid, Features) of
                undefined -> demonitor(Monitor, [flush]), Exits;
                #{parent := Parent} = Noted ->
                    {Title, Known} = parent(local(Parent), Exits),
                    keep(Monitor, Pid, Title, Noted, Known)
            end
    end.

local(Name) when is_atom(Name), Name =/= undefined -> whereis(Name);
local(Pid) when is_pid(Pid), node(Pid) =:= node() -> Pid;
local(_) -> undefined.

%% The title of a parent, which is added to the supervisors if it is one.
parent(undefined, Exits) -> {unknown, Exits};
parent(Pid, #exits{supervisors = All, parents = Parents, features = Features} = Exits) ->
    case {All, Parents} of
        {#{Pid := #supervisor{title = Title}}, _} -> {Title, Exits};
        {_, #{Pid := Title}} -> {Title, Exits};
        _ ->
            case noted(Pid, Features) of
                undefined -> {unknown, Exits};
                #{call := Call} = Noted ->
                    case supervisor_title(Pid, Noted) of
                        none ->
                            Title = #{pid => id(Pid), name => maps:get(name, Noted, <<>>), call => Call},
                            Some = case map_size(Parents) >= ?MAX_MONITORED of true -> #{}; false -> Parents end,
                            {Title, Exits#exits{parents = Some#{Pid => Title}}};
                        Title ->
                            #exits{active = Active} = Added = add_supervisor(Pid, Title, Exits),
                            {Title, case is_map_key(Pid, Added#exits.supervisors) of
                                        true -> Added#exits{active = Active ++ [Pid]};
                                        false -> Added
                                    end}
                    end
            end
    end.

keep(Monitor, Pid, Title, Noted, Exits) ->
    By = case Title of
             #{name := Name, call := Call} -> {Name, Call};
             unknown -> {<<>>, undefined}
         end,
    case room(By, Exits) of
        full -> demonitor(Monitor, [flush]), Exits;
        #exits{monitored = Monitored, pids = Pids} = Room ->
            {Called, Limit, IsProcLib} = described(Pid, Noted),
            Process = #monitored{pid = Pid, by = By, parent = case Title of #{pid := Parent} -> Parent; unknown -> <<>> end,
                             title = Called, heap_limit = Limit, is_proc_lib = IsProcLib, since_ms = now_ms()},
            Room#exits{monitored = Monitored#{Monitor => Process}, pids = Pids#{Pid => Monitor}}
    end.

%% {name and call, its own heap limit in words, whether proc_lib started it}
described(_, undefined) -> {#{}, 0, true};
described(Pid, Noted) ->
    Called = case Noted of
                 %% proc_lib has not set its initial call yet.
                 #{call := {<<"proc_lib">>, _, _}} -> maps:with([name], Noted);
                 _ -> maps:with([name, call], Noted)
             end,
    case process_info(Pid, [initial_call, garbage_collection]) of
        [{_, Call}, {_, Gc}] ->
            Limit = case proplists:get_value(max_heap_size, Gc) of
                        #{size := Words, kill := true} -> Words;
                        _ -> 0
                    end,
            {Called, Limit, element(1, Call) =:= proc_lib};
        undefined -> {Called, 0, true}
    end.

%% Makes room for one more child of this parent by demonitoring the oldest process, if it is old enough.
room(By, #exits{monitored = Monitored} = Exits) ->
    case [{Since, Monitor} || {Monitor, #monitored{by = B, since_ms = Since}} <- maps:to_list(Monitored), B =:= By] of
        Others when length(Others) >= ?MAX_CHILDREN -> leave_oldest(Others, Exits);
        _ when map_size(Monitored) >= ?MAX_MONITORED ->
            leave_oldest([{Since, Monitor} || {Monitor, #monitored{since_ms = Since}} <- maps:to_list(Monitored)], Exits);
        _ -> Exits
    end.

leave_oldest(Monitored, #exits{monitored = All, pids = Pids} = Exits) ->
    {Since, Monitor} = lists:min(Monitored),
    case now_ms() - Since > ?HELD_MS of
        true ->
            demonitor(Monitor, [flush]),
            #{Monitor := #monitored{pid = Pid}} = All,
            Exits#exits{monitored = maps:remove(Monitor, All), pids = maps:remove(Pid, Pids)};
        false -> full
    end.

has_ended(Monitor, Reason, #exits{monitored = Monitored, pids = Pids} = Exits) ->
    case Monitored of
        #{Monitor := #monitored{pid = Pid, by = By, parent = Parent, title = Title, heap_limit = Limit} = Process} ->
            Left = Exits#exits{monitored = maps:remove(Monitor, Monitored), pids = maps:remove(Pid, Pids)},
            case why(Reason, Process) of
                unknown -> Left;
                in_order -> count({By, in_order(Reason, Title, By, Left), #{}}, {Parent, 0}, Left);
                Why -> count({By, Title, Why}, {Parent, Limit}, Left)
            end;
        _ -> Exits
    end.

%% A supervisor ends the siblings of a failed child with `shutdown': the same name again and again shows restarts. Of other normal exits
%% only the number matters.
in_order(shutdown, #{name := Name}, By, #exits{ends = Ends}) when Name =/= <<>> ->
    Named = #{name => Name},
    IsFull = length([Other || {_, #{name := Other}, Why} <- maps:keys(Ends), Why =:= #{}]) >= ?MAX_SHUT_DOWN,
    case IsFull andalso not is_map_key({By, Named, #{}}, Ends) of
        true -> #{};
        false -> Named
    end;
in_order(_, _, _, _) -> #{}.

count(Key, Last, #exits{ends = Ends, lost = Lost, version = Version} = Exits) ->
    case Ends of
        #{Key := {Count, _}} -> Exits#exits{ends = Ends#{Key := {Count + 1, Last}}, version = Version + 1};
        _ when map_size(Ends) >= ?MAX_ENDS -> Exits#exits{lost = Lost + 1};
        _ -> Exits#exits{ends = Ends#{Key => {1, Last}}, version = Version + 1}
    end.

%%% Reasons ---------------------------------------------------------------------------------------------------

%% `in_order' for a normal exit, `unknown' if the process had ended before it was monitored, or #{reason, stack, to} as data.
why(noproc, _) -> unknown;
why(Reason, _) when Reason =:= normal; Reason =:= shutdown; element(1, Reason) =:= shutdown -> in_order;
why(Reason, #monitored{is_proc_lib = IsProcLib, heap_limit = Limit}) ->
    case try reason(Reason) catch _:_ -> #{reason => <<"?">>, stack => [], to => <<>>} end of
        %% Without proc_lib, no report is made of an exit that is not an exception: it counts as normal, unless the process may have
        %% been killed at its maximum heap size.
        #{stack := []} when not IsProcLib, not (Limit > 0 andalso Reason =:= killed) -> in_order;
        Why -> Why
    end.

%% A failed call ({timeout, {gen_server, call, [Name | _]}} and the like), an exception with its stack, or the argument of exit/1.
reason({Reason, {Module, Function, [To | _] = Args}}) when is_atom(Module), Function =:= call orelse Function =:= await ->
    Called = case is_atom(To) andalso whereis(To) of Pid when is_pid(Pid) -> bin(To); _ -> <<>> end,
    #{reason => short(Reason, ?REASON_DEPTH), stack => [{mfa({Module, Function, Args}), 0}], to => Called};
reason({Reason, [{Module, Function, _, Where} | _] = Stack}) when is_atom(Module), is_atom(Function), is_list(Where) ->
    Inner = case Reason of
                {_, {_, _, [_ | _]}} -> reason(Reason);
                _ -> #{reason => short(Reason, ?REASON_DEPTH), to => <<>>}
            end,
    Inner#{stack => [frame(Frame) || Frame <- lists:sublist(Stack, ?FRAMES)]};
reason(Reason) -> #{reason => short(Reason, ?REASON_DEPTH), stack => [], to => <<>>}.

frame({Module, Function, Arity, Where}) -> {mfa({Module, Function, Arity}), line(lists:keyfind(line, 1, Where))}.

line({line, Line}) when is_integer(Line) -> Line;
line(_) -> 0.

%% The first atom of a reason, or the name of an Elixir exception. All else is data.
short(Atom, _) when is_atom(Atom) -> bin(Atom);
short(#{'__struct__' := Name, '__exception__' := true}, _) when is_atom(Name) -> bin(Name);
short(Tuple, Depth) when is_tuple(Tuple), tuple_size(Tuple) > 0, Depth > 0 -> short(element(1, Tuple), Depth - 1);
short(_, _) -> <<"?">>.
