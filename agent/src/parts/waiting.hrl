%% `stands': where a random sample of processes waits, and for which processes.
%% One blocking process can hold up many others while all of them look idle.

%% How many processes are asked at least, and for how much of the budget (percent; the item is read each 10 s).
-define(LEAST_STANDS, 20).
-define(STANDS_SHARE, 10).
%% What one process costs: it is woken and answers twice.
-define(STAND_US, 20).
%% How many kinds of places are reported, and for how many processes each of them may wait.
-define(STAND_ROWS, 20).
-define(MOST_ON, 8).
%% So far it is followed for whom those wait that are waited for.
-define(FOLLOWED, 5).
%% From how many rows of a book the sample is drawn.
-define(STAND_CHUNKS, 10).
%% Who has more connections than these serves many, and waits for none of them.
-define(MOST_PEERS, 3).
%% With more beside its heap a process has long lists of monitors or links, which are not read (a monitor takes some 100 bytes).
-define(FEW_MONITORS_BYTES, 16384).
%% Beside its heap a process has so much for each message that waits (measured, OTP 23 to 29).
-define(MESSAGE_HEAD_BYTES, 88).

%% Of some processes, chosen by chance, that wait: where, and for whom if they do so in the midst of something.
stands(Most, #state{budget_ppm = Budget, own = Own, stands_first = IsFirst} = State) ->
    case known_processes(State) of
        not_yet ->
            {#{total => erlang:system_info(process_count), sampled => 0, waiting => 0, rows => [], waited_for => []}, State};
        {List, Total} ->
            Affordable = max(?LEAST_STANDS, min(Most, 10 * Budget * ?STANDS_SHARE div (100 * ?STAND_US))),
            %% What later samples find is added to what is known.
            Count = case IsFirst of true -> Affordable; false -> max(?LEAST_STANDS, Affordable div 2) end,
            Chosen = some(Count, List, Total) -- Own,
            Stood = details(fun stand/1, Chosen, State),
            Waiting = [Stand || {_, #{status := waiting} = Stand} <- Stood],
            Places = lists:foldl(fun add_stand/2, #{}, Waiting),
            Wanted = most_wanted(Waiting),
            MayWalk = Wanted =/= [] andalso may_walk(),
            Ask = fun(Pid) -> wanted(Pid, MayWalk) end,
            Looked = follow(Ask, Wanted, [], ?FOLLOWED, State),
            Rows = lists:reverse(lists:keysort(2, [{Stack, N, Queued, best_on(On)}
                                                   || {Stack, {N, Queued, On}} <- maps:to_list(Places)])),
            {#{total => Total, sampled => length(Stood), waiting => length(Waiting),
               rows => lists:sublist(Rows, ?STAND_ROWS),
               waited_for => [{id(Pid), Status, Queue, Stack, [on(P) || P <- On]}
                              || {Pid, #{status := Status, queue := Queue, stack := Stack, on := On}} <- Looked]},
             State#state{waited_for = lists:sublist([Pid || {Pid, _} <- Looked], 2 * ?MOST_WANTED), stands_first = false}}
    end.

%% Those that are waited for may wait for others themselves, and these for others: in a circle, if nobody goes on.
follow(_, Pids, Looked, Steps, _) when Pids =:= []; Steps =:= 0 -> Looked;
follow(Ask, Pids, Looked, Steps, State) ->
    Now = details(Ask, Pids, State),
    All = Looked ++ Now,
    follow(Ask, most_wanted([Stand || {_, Stand} <- Now]) -- [Pid || {Pid, _} <- All], All, Steps - 1, State).

%% Status and queue first: they are read from outside, and only who waits is asked for more. Whom a process monitors tells whom it
%% waits for: a call monitors who is called. Not where it waits in the loop of a behaviour, as one does that very many monitor.
stand(Pid) -> stand(Pid, fun erlang:'not'/1).

%% MayAsk: of whether it stands in a loop, whether it may be asked for what walks its links and monitors.
stand(Pid, MayAsk) ->
    case process_info(Pid, [status, message_queue_len]) of
        [{_, waiting}, {_, Queue}] ->
            case process_info(Pid, current_stacktrace) of
                {_, Stack} ->
                    IsLoop = is_loop(Stack),
                    HasFew = Queue =< ?WALKED_MESSAGES andalso MayAsk(IsLoop) andalso has_few_monitors(Pid),
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

%% Whether there are so few that they may be listed.
has_few_monitors(Pid) ->
    case process_info(Pid, [garbage_collection_info, memory, message_queue_len]) of
        [{_, Heaps}, {_, Memory}, {_, Queue}] ->
            Memory - heap_words(Heaps) * erlang:system_info(wordsize) - Queue * ?MESSAGE_HEAD_BYTES < ?FEW_MONITORS_BYTES;
        undefined -> false
    end.

%% One that others wait for, also with the other ends of its connections: what it waits for may be there. It is one that very many
%% may monitor, so it is not asked for them where there are very many at all.
wanted(Pid, MayWalk) ->
    case stand(Pid, fun(_) -> MayWalk end) of
        #{has_few := true, on := On} = Stand -> Stand#{on := On ++ peers(Pid)};
        Stand -> Stand
    end.

is_loop([{gen_server, loop, _, _} | _]) -> true;
is_loop([{gen_event, fetch_msg, _, _} | _]) -> true;
is_loop([{gen_statem, Loop, _, _} | _]) -> lists:member(Loop, [loop, loop_receive, loop_hibernate]);
is_loop([]) -> true;
is_loop(_) -> false.

%% Local processes as pids, of others the name of their node.
monitored(Pid) ->
    case process_info(Pid, monitors) of
        {_, Monitors} ->
            case lists:usort([M || Monitor <- Monitors, M <- of_monitor(Monitor)]) of
                On when length(On) =< ?MOST_ON -> On;
                %% It calls one of them, who has not come to it: the only one with messages.
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

%% Of a process that has few of them.
peers(Pid) ->
    case process_info(Pid, links) of
        {_, Links} ->
            case [Port || Port <- Links, is_port(Port)] of
                Ports when length(Ports) =< ?MOST_PEERS -> lists:usort([Peer || Port <- Ports, Peer <- peer(Port)]);
                _ -> []
            end;
        undefined -> []
    end.

%% The driver answers, and no process.
peer(Port) ->
    case erlang:port_info(Port, name) of
        {_, "tcp_inet"} ->
            case prim_inet:peername(Port) of
                {ok, {Address, Number}} when is_tuple(Address) -> [{tcp, address(Address, Number)}];
                _ -> []
            end;
        _ -> []
    end.

%% As a URL has it, but for zeros of IPv6: inet_parse may not be loaded.
address({_, _, _, _} = Address, Number) ->
    iolist_to_binary([lists:join($., [integer_to_list(N) || N <- tuple_to_list(Address)]), $:, integer_to_list(Number)]);
address(Address, Number) ->
    iolist_to_binary([$[, lists:join($:, [integer_to_list(N, 16) || N <- tuple_to_list(Address)]), "]:", integer_to_list(Number)]).

on({tcp, Address}) -> Address;
on(Node) when is_atom(Node) -> bin(Node);
on(Pid) -> id(Pid).

add_stand(#{stack := Stack, queue := Queue, on := On}, Places) ->
    {N, Queued, Before} = maps:get(Stack, Places, {0, 0, #{}}),
    Places#{Stack => {N + 1, Queued + min(Queue, 1), lists:foldl(fun(Target, Map) -> merge(Target, 1, fun erlang:'+'/2, Map) end, Before, On)}}.

best_on(On) -> [{on(Target), maps:get(Target, On)} || Target <- best(On, ?MOST_ON)].

%% The local processes that most wait for.
most_wanted(Stands) ->
    Votes = lists:foldl(fun(Pid, Map) -> merge(Pid, 1, fun erlang:'+'/2, Map) end, #{},
                        [Pid || #{on := On} <- Stands, Pid <- On, is_pid(Pid)]),
    best(Votes, ?MOST_WANTED).

%% So many of a list or a book, by chance; all where there are no more. Of a book, from some of its rows.
some(Count, List, Total) when Total =< Count -> element(1, take(Count, List, List));
some(Count, {book, Table, _} = Book, _) ->
    case ets:info(Table, size) of
        Rows when is_integer(Rows), Rows > 0 ->
            Chunks = [proper(turn(Row, Book)) || Row <- lists:usort([chance(Rows) || _ <- lists:seq(1, ?STAND_CHUNKS)])],
            lists:append([some(Count div ?STAND_CHUNKS, Pids, length(Pids)) || Pids <- Chunks]);
        _ -> []
    end;
some(Count, List, Total) ->
    pick(lists:usort([chance(Total) || _ <- lists:seq(1, Count)]), 1, List).

pick([Place | Places], Place, [Pid | Rest]) -> [Pid | pick(Places, Place + 1, Rest)];
pick([_ | _] = Places, At, [_ | Rest]) -> pick(Places, At + 1, Rest);
pick(_, _, _) -> [].

%% A row of a book without the number of the next one, which is its tail.
proper([Pid | Rest]) -> [Pid | proper(Rest)];
proper(_) -> [].

%% 1 .. Of, by chance; the module rand may have to be loaded first.
chance(Of) -> 1 + erlang:phash2(erlang:unique_integer(), Of).
