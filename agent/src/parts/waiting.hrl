%% `stands': call stacks of a random sample of waiting processes, and the processes that they wait for.
%% One blocking process can hold up many others while all of them look idle.

%% Minimum size of the sample, and its share of the budget (percent; the item is read each 10 s).
-define(MIN_WAIT_SAMPLE, 20).
-define(WAIT_SAMPLE_SHARE, 10).
%% Cost of one process: it is woken and answers twice.
-define(WAIT_SAMPLE_US, 20).
%% Number of distinct stacks reported, and maximum number of awaited processes of each.
-define(WAIT_ROWS, 20).
-define(MAX_AWAITED, 8).
%% Maximum length of a chain of blocking processes that is followed.
-define(MAX_CHAIN, 5).
%% Number of rows of a list table from which the sample is drawn.
-define(SAMPLED_CHUNKS, 10).
%% A process with more connections than this serves many, and waits for none of them.
-define(MAX_PEERS, 3).
%% A process with more memory outside of its heap has long lists of monitors or links, which are not read (a monitor takes some 100 bytes).
-define(MAX_MONITORS_BYTES, 16384).
%% Memory outside of the heap for each queued message (measured, OTP 23 to 29).
-define(MESSAGE_HEAD_BYTES, 88).

%% Samples waiting processes: their call stacks and, if they wait outside of their main loop, the processes that they wait for.
stands(Max, #state{budget_ppm = Budget, own = Own, is_first_stands = IsFirst} = State) ->
    case known_processes(State) of
        not_yet ->
            {#{total => erlang:system_info(process_count), sampled => 0, waiting => 0, rows => [], waited_for => []}, State};
        {List, Total} ->
            Affordable = max(?MIN_WAIT_SAMPLE, min(Max, 10 * Budget * ?WAIT_SAMPLE_SHARE div (100 * ?WAIT_SAMPLE_US))),
            %% Later samples add to earlier ones, so they may be smaller.
            Count = case IsFirst of true -> Affordable; false -> max(?MIN_WAIT_SAMPLE, Affordable div 2) end,
            Chosen = some(Count, List, Total) -- Own,
            Samples = details(fun wait_sample/1, Chosen, State),
            Waiting = [Sample || {_, #{status := waiting} = Sample} <- Samples],
            Places = lists:foldl(fun add_wait_sample/2, #{}, Waiting),
            Blocking = most_awaited(Waiting),
            MayWalk = Blocking =/= [] andalso may_walk(),
            Ask = fun(Pid) -> blocking_sample(Pid, MayWalk) end,
            Looked = follow(Ask, Blocking, [], ?MAX_CHAIN, State),
            Rows = lists:reverse(lists:keysort(2, [{Stack, N, Queued, best_on(On)}
                                                   || {Stack, {N, Queued, On}} <- maps:to_list(Places)])),
            {#{total => Total, sampled => length(Samples), waiting => length(Waiting),
               rows => lists:sublist(Rows, ?WAIT_ROWS),
               waited_for => [{id(Pid), Status, Queue, Stack, [on(P) || P <- On]}
                              || {Pid, #{status := Status, queue := Queue, stack := Stack, on := On}} <- Looked]},
             State#state{waited_for = lists:sublist([Pid || {Pid, _} <- Looked], 2 * ?MAX_NOTED), is_first_stands = false}}
    end.

%% Follows chains: blocking processes may wait for others themselves, in a cycle if they are deadlocked.
follow(_, Pids, Looked, Steps, _) when Pids =:= []; Steps =:= 0 -> Looked;
follow(Ask, Pids, Looked, Steps, State) ->
    Now = details(Ask, Pids, State),
    All = Looked ++ Now,
    follow(Ask, most_awaited([Sample || {_, Sample} <- Now]) -- [Pid || {Pid, _} <- All], All, Steps - 1, State).

%% Status and queue length come first: they are read from outside, and only waiting processes are asked for more. A process waits for
%% those that it monitors, since a call monitors the callee. Not if it waits in the main loop of a behaviour, as processes do that very
%% many others monitor.
wait_sample(Pid) -> wait_sample(Pid, fun erlang:'not'/1).

%% MayAsk: whether items that walk links and monitors may be read, depending on whether the process waits in a main loop.
wait_sample(Pid, MayAsk) ->
    case process_info(Pid, [status, message_queue_len]) of
        [{_, waiting}, {_, Queue}] ->
            case process_info(Pid, current_stacktrace) of
                {_, Stack} ->
                    IsLoop = is_loop(Stack),
                    HasFew = Queue =< ?MAX_WALKED_MESSAGES andalso MayAsk(IsLoop) andalso has_few_monitors(Pid),
                    #{status => waiting, queue => Queue, stack => functions(Stack),
                      has_few => HasFew,
                      on => case HasFew andalso not IsLoop of
                                true -> monitored(Pid);
                                false -> []
                            end};
                undefined -> undefined
            end;
        [{_, Status}, {_, Queue}] -> #{status => Status, queue => Queue, stack => [], on => []};
        undefined -> undefined
    end.

%% Whether a process has so few monitors and links that they may be listed.
has_few_monitors(Pid) ->
    case process_info(Pid, [garbage_collection_info, memory, message_queue_len]) of
        [{_, Heaps}, {_, Memory}, {_, Queue}] ->
            Memory - heap_words(Heaps) * erlang:system_info(wordsize) - Queue * ?MESSAGE_HEAD_BYTES < ?MAX_MONITORS_BYTES;
        undefined -> false
    end.

%% Samples a blocking process, with the peers of its connections, since it may wait for one of them. Very many processes may monitor
%% it, so its monitors are not read if the node has very many.
blocking_sample(Pid, MayWalk) ->
    case wait_sample(Pid, fun(_) -> MayWalk end) of
        #{has_few := true, on := On} = Sample -> Sample#{on := On ++ peers(Pid)};
        Sample -> Sample
    end.

is_loop([{gen_server, loop, _, _} | _]) -> true;
is_loop([{gen_event, fetch_msg, _, _} | _]) -> true;
is_loop([{gen_statem, Loop, _, _} | _]) -> lists:member(Loop, [loop, loop_receive, loop_hibernate]);
is_loop([]) -> true;
is_loop(_) -> false.

%% Local processes as pids, remote ones as the name of their node.
monitored(Pid) ->
    case process_info(Pid, monitors) of
        {_, Monitors} ->
            case lists:usort([M || Monitor <- Monitors, M <- of_monitor(Monitor)]) of
                On when length(On) =< ?MAX_AWAITED -> On;
                %% It has called one of them, which has not handled the message yet: the only one with messages.
                On ->
                    case [P || P <- On, is_pid(P), has_messages(P)] of
                        [_] = Behind -> Behind;
                        _ -> []
                    end
            end;
        undefined -> []
    end.

has_messages(Pid) ->
    case process_info(Pid, message_queue_len) of
        {_, Length} -> Length > 0;
        undefined -> false
    end.

of_monitor({process, Pid}) when is_pid(Pid), node(Pid) =:= node() -> [Pid];
of_monitor({process, Pid}) when is_pid(Pid) -> [node(Pid)];
of_monitor({process, {Name, Node}}) when Node =:= node() -> [Pid || Pid <- [whereis(Name)], is_pid(Pid)];
of_monitor({process, {_, Node}}) -> [Node];
of_monitor(_) -> [].

%% The peers of a process with few connections.
peers(Pid) ->
    case process_info(Pid, links) of
        {_, Links} ->
            case [Port || Port <- Links, is_port(Port)] of
                Ports when length(Ports) =< ?MAX_PEERS -> lists:usort([Peer || Port <- Ports, Peer <- peer(Port)]);
                _ -> []
            end;
        undefined -> []
    end.

%% The driver answers, not a process.
peer(Port) ->
    case erlang:port_info(Port, name) of
        {_, "tcp_inet"} ->
            case prim_inet:peername(Port) of
                {ok, {Address, Number}} when is_tuple(Address) -> [{tcp, address(Address, Number)}];
                _ -> []
            end;
        _ -> []
    end.

%% Formatted as in a URL, but with all zeros of IPv6, since inet_parse may not be loaded.
address({_, _, _, _} = Address, Number) ->
    iolist_to_binary([lists:join($., [integer_to_list(N) || N <- tuple_to_list(Address)]), $:, integer_to_list(Number)]);
address(Address, Number) ->
    iolist_to_binary([$[, lists:join($:, [integer_to_list(N, 16) || N <- tuple_to_list(Address)]), "]:", integer_to_list(Number)]).

on({tcp, Address}) -> Address;
on(Node) when is_atom(Node) -> bin(Node);
on(Pid) -> id(Pid).

add_wait_sample(#{stack := Stack, queue := Queue, on := On}, Places) ->
    {N, Queued, Before} = maps:get(Stack, Places, {0, 0, #{}}),
    Places#{Stack => {N + 1, Queued + min(Queue, 1), lists:foldl(fun(Target, Map) -> merge(Target, 1, fun erlang:'+'/2, Map) end, Before, On)}}.

best_on(On) -> [{on(Target), maps:get(Target, On)} || Target <- best(On, ?MAX_AWAITED)].

%% The local processes that the most others wait for.
most_awaited(Samples) ->
    Votes = lists:foldl(fun(Pid, Map) -> merge(Pid, 1, fun erlang:'+'/2, Map) end, #{},
                        [Pid || #{on := On} <- Samples, Pid <- On, is_pid(Pid)]),
    best(Votes, ?MAX_NOTED).

%% A random sample of a list or list table; all if there are no more. Of a list table, from some of its rows.
some(Count, List, Total) when Total =< Count -> element(1, take(Count, List, List));
some(Count, {list_table, Table, _} = ListTable, _) ->
    case ets:info(Table, size) of
        Rows when is_integer(Rows), Rows > 0 ->
            Chunks = [proper(turn(Row, ListTable)) || Row <- lists:usort([chance(Rows) || _ <- lists:seq(1, ?SAMPLED_CHUNKS)])],
            lists:append([some(Count div ?SAMPLED_CHUNKS, Pids, length(Pids)) || Pids <- Chunks]);
        _ -> []
    end;
some(Count, List, Total) ->
    pick(lists:usort([chance(Total) || _ <- lists:seq(1, Count)]), 1, List).

pick([Place | Places], Place, [Pid | Rest]) -> [Pid | pick(Places, Place + 1, Rest)];
pick([_ | _] = Places, At, [_ | Rest]) -> pick(Places, At + 1, Rest);
pick(_, _, _) -> [].

%% A row of a list table without the number of the next one, which is its tail.
proper([Pid | Rest]) -> [Pid | proper(Rest)];
proper(_) -> [].

%% A random number 1 .. Of; not by the module rand, which might not be loaded yet.
chance(Of) -> 1 + erlang:phash2(erlang:unique_integer(), Of).
