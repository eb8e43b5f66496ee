%% `broker' and `broker_clients': RabbitMQ's own counters of its queues and clients. They are in public ETS tables of rabbit_core_metrics
%% (3.8 to 4.3: rabbit_core_metrics.hrl); no process of the broker is asked.

%% Larger tables are not read: 1 to 2 us for each row.
-define(BROKER_ROWS, 20000).
%% Rows of connections are lists of some hundred words.
-define(BROKER_CONNECTIONS, 5000).
-define(BROKER_CHUNK, 200).
%% Number of queues with the most redeliveries, and of those with the most messages.
-define(BROKER_TOP, 10).
%% Minimum number of channels of a reported connection.
-define(MIN_CHANNELS, 20).
-define(BROKER_CLIENTS, 3).
%% Number of kinds of clients opening connections and channels that are kept, and reported.
-define(OPENERS_KEPT, 50).
-define(OPENERS, 10).

%% Read each second: a few rows and sizes, and the newest processes, some of which are connections and channels of clients.
broker(#state{procs = #procs{fresh = Fresh}, openers = Before} = State) ->
    case ets:info(connection_churn_metrics, size) of
        undefined -> #{};
        _ ->
            Openers = lists:foldl(fun count_opener/2, Before, Fresh),
            Sizes = [{Key, ets:info(Table, size)}
                     || {Key, Table} <- [{connections, connection_created}, {channels, channel_created},
                                         {consumers, consumer_created}, {queues, queue_coarse_metrics}]],
            Churn = case ets:lookup(connection_churn_metrics, node()) of
                        [Row] when tuple_size(Row) >= 8 -> lists:sublist(tl(tuple_to_list(Row)), 7);
                        _ -> [0, 0, 0, 0, 0, 0, 0]
                    end,
            Counters = lists:zip([connections_opened, connections_closed, channels_opened, channels_closed, queues_declared, queues_created,
                                  queues_deleted], Churn),
            Logins = [{logins, sum_of(auth_attempt_metrics, 3)}, {logins_failed, sum_of(auth_attempt_metrics, 4)}],
            {maps:from_list([{K, V} || {K, V} <- Sizes ++ Counters ++ Logins, is_integer(V)]), State#state{openers = Openers}}
    end.

%% Sums a column over the rows, one for each protocol.
sum_of(Table, Place) ->
    try lists:sum(ets:select(Table, [{{'_', '_', '$1', '$2'}, [], [case Place of 3 -> '$1'; 4 -> '$2' end]}])) catch error:_ -> undefined end.

count_opener(Pid, Openers) ->
    Key = case row(connection_created, Pid) of
              undefined ->
                  case client_of(Pid) of undefined -> none; {Name, User} -> {channels, without_port(Name), User} end;
              Infos -> {connections, without_port(client_name(Infos)), client_user(Infos)}
          end,
    if
        Key =:= none -> Openers;
        map_size(Openers) >= ?OPENERS_KEPT, not is_map_key(Key, Openers) -> Openers;
        true -> merge(Key, 1, fun erlang:'+'/2, Openers)
    end.

row(Table, Key) ->
    case ets:lookup(Table, Key) of
        [Row] when tuple_size(Row) >= 2, is_list(element(2, Row)) -> element(2, Row);
        _ -> undefined
    end.

%% The client of a channel: {name of its connection, user}.
client_of(Channel) ->
    case row(channel_created, Channel) of
        undefined -> undefined;
        Infos ->
            case row(connection_created, value_of(connection, Infos)) of
                undefined -> {bin(value_of(name, Infos)), client_user(Infos)};
                Connection -> {client_name(Connection), client_user(Connection)}
            end
    end.

%% The name as in RabbitMQ's log and in the label of the connection's process.
client_name(Infos) ->
    Name = bin(value_of(name, Infos)),
    case value_of(user_provided_name, Infos) of
        Given when is_binary(Given), Given =/= <<>> -> cut(<<Name/binary, " - ", (bin(Given))/binary>>, ?NAME_BYTES);
        _ -> Name
    end.

client_user(Infos) ->
    case value_of(user, Infos) of User when is_binary(User) -> bin(User); _ -> <<>> end.

value_of(Key, Infos) ->
    case lists:keyfind(Key, 1, Infos) of {_, Value} -> Value; _ -> undefined end.

%% Each connection has another port: `10.0.0.7:41234 -> 10.0.0.1:5672 - worker' becomes `worker', without such a name `10.0.0.7'.
without_port(Name) ->
    case binary:split(Name, <<" - ">>) of
        [_, Given] -> Given;
        [Address] -> re:replace(hd(binary:split(Address, <<" -> ">>)), ":[0-9]+$", "", [{return, binary}])
    end.

%% The top clients and queues.
broker_clients(#state{openers = Openers} = State) ->
    case ets:info(connection_churn_metrics, size) of
        undefined -> #{};
        _ ->
            {Coarse, State1} = fold_rows(queue_coarse_metrics, ?BROKER_ROWS, [{{'$1', '$2', '$3', '_', '_'}, [], [{{'$1', '$2', '$3'}}]}],
                                         fun add_depth/2, {0, 0, top(?BROKER_TOP)}, State),
            {Delivered, State2} =
                fold_rows(channel_queue_metrics, ?BROKER_ROWS,
                          [{{{'$1', '$2'}, '$3', '$4', '$5', '$6', '$7', '$8', '_', '_'}, [],
                            [{{'$1', '$2', {'+', {'+', '$3', '$4'}, {'+', '$5', '$6'}}, '$7', '$8'}}]}],
                          fun add_delivery/2, #{}, State1),
            Deep = case Coarse of {_, _, Top} -> [{Q, {R, U}} || {_, {Q, R, U}} <- top_list(Top)]; _ -> [] end,
            Again = case Delivered of
                        #{} -> [Q || Q <- best(maps:map(fun(_, {_, R, _, _}) -> R end, Delivered), ?BROKER_TOP),
                                     element(2, maps:get(Q, Delivered)) > 0];
                        _ -> []
                    end,
            Queues = unique([Q || {Q, _} <- Deep] ++ Again),
            {Consumers, State3} = consumers(Queues, State2),
            {Connections, State4} = fold_rows(connection_metrics, ?BROKER_CONNECTIONS, [{'$1', [], ['$1']}], fun add_connection/2,
                                              {#{}, [], top(?BROKER_TOP)}, State3),
            Described = [queue_row(Q, proplists:get_value(Q, Deep), Delivered, Consumers) || Q <- Queues],
            Sums = case Coarse of {Ready, Unacked, _} -> #{ready => Ready, unacked => Unacked}; _ -> #{} end,
            {maps:merge(maps:merge(Sums, connections_of(Connections)),
                        (maps:merge(messages(), alarms()))#{
                            statistics => case rabbit(collect_statistics) of fine -> 2; coarse -> 1; _ -> 0 end,
                            queue_rows => [Row || #{} = Row <- Described],
                            openers => [{Kind, Name, User, maps:get(Key, Openers)} || {Kind, Name, User} = Key <- best(Openers, ?OPENERS)]}),
             State4#state{titles = maps:from_list([Title || Queue <- Queues, Title <- title_of(Queue)])}}
    end.

%% Folds over the results of Spec for each row, in chunks; `unread' if there is no such table, or it is too large.
fold_rows(Table, Max, Spec, Add, Acc, State) ->
    case ets:info(Table, size) of
        Size when is_integer(Size), Size =< Max ->
            try
                %% Rows are inserted and deleted meanwhile; without this some might be visited twice.
                ets:safe_fixtable(Table, true),
                fold_chunks(ets:select(Table, Spec, ?BROKER_CHUNK), Add, Acc, Max, State)
            after catch ets:safe_fixtable(Table, false)
            end;
        _ -> {unread, State}
    end.

fold_chunks({Rows, Next}, Add, Acc, Left, State) when Left > 0 ->
    fold_chunks(ets:select(Next), Add, lists:foldl(Add, Acc, Rows), Left - length(Rows), rest(State));
fold_chunks(_, _, Acc, _, State) -> {Acc, State}.

add_depth({Queue, Ready, Unacked}, {Sum, Pending, Top}) when is_integer(Ready), is_integer(Unacked) ->
    {Sum + Ready, Pending + Unacked, case Ready + Unacked of 0 -> Top; Depth -> top_add(Depth, {Queue, Ready, Unacked}, Top) end};
add_depth(_, Acc) -> Acc.

%% Queue => {deliveries, redeliveries, acknowledgements, [{redeliveries, deliveries, acknowledgements, channel}] of the top channels}.
add_delivery({Channel, Queue, Delivered, Again, Acked}, Queues) ->
    {D, A, K, Channels} = maps:get(Queue, Queues, {0, 0, 0, []}),
    Foremost = lists:sublist(lists:reverse(lists:sort([{Again, Delivered, Acked, Channel} | Channels])), ?BROKER_CLIENTS),
    Queues#{Queue => {D + Delivered, A + Again, K + Acked, Foremost}}.

%% Queue => [{channel, whether it acknowledges, prefetch}].
consumers([], State) -> {#{}, State};
consumers(Queues, State) ->
    IsOne = case [{'=:=', '$1', {const, Q}} || Q <- Queues] of [One] -> One; Several -> list_to_tuple(['orelse' | Several]) end,
    fold_rows(consumer_created, ?BROKER_ROWS, [{{{'$1', '$2', '_'}, '_', '$3', '$4', '_', '_', '_'}, [IsOne], [{{'$1', '$2', '$3', '$4'}}]}],
              fun({Q, Channel, Acks, Prefetch}, Found) -> merge(Q, [{Channel, Acks, Prefetch}], fun erlang:'++'/2, Found) end, #{}, State).

add_connection({Pid, Infos}, {States, Blocked, Top}) when is_list(Infos) ->
    Condition = value_of(state, Infos),
    IsBlocked = Condition =:= blocked orelse Condition =:= blocking,
    Channels = case value_of(channels, Infos) of Count when is_integer(Count) -> Count; _ -> 0 end,
    {case is_atom(Condition) of true -> merge(Condition, 1, fun erlang:'+'/2, States); false -> States end,
     case IsBlocked of true -> lists:sublist([{Pid, Channels} | Blocked], ?BROKER_CLIENTS); false -> Blocked end,
     if Channels >= ?MIN_CHANNELS -> top_add(Channels, Pid, Top); true -> Top end};
add_connection(_, Acc) -> Acc.

connections_of(unread) -> #{connection_rows => []};
connections_of({States, Blocked, Top}) ->
    Count = fun(Condition) -> maps:get(Condition, States, 0) end,
    Rows = [{client_name(Infos), client_user(Infos), Channels, lists:keymember(Pid, 1, Blocked)}
            || {Pid, Channels} <- unique([{Pid, N} || {N, Pid} <- top_list(Top)] ++ Blocked),
               Infos <- [row(connection_created, Pid)], is_list(Infos)],
    #{blocked => Count(blocked) + Count(blocking), flow => Count(flow), connection_rows => Rows}.

queue_row({resource, VHost, queue, Name} = Queue, Depth, Delivered, Consumers) ->
    {Sent, Channels} = case Delivered of
                           #{Queue := {D, A, K, Foremost}} -> {#{delivered => D, redelivered => A, acknowledged => K}, Foremost};
                           _ -> {#{}, []}
                       end,
    Consuming = case Consumers of
                    unread -> unread;
                    #{Queue := List} -> List;
                    #{} -> []
                end,
    Known = case Consuming of
                unread -> #{};
                _ -> #{consumers => length(Consuming), prefetch => lists:sum([P || {_, _, P} <- Consuming, is_integer(P)]),
                       unlimited => length([C || {_, true, 0} = C <- Consuming])}
            end,
    Now = case Depth of {Ready, Unacked} -> #{ready => Ready, unacked => Unacked}; _ -> #{} end,
    Others = case Consuming of unread -> []; _ -> [{0, 0, 0, Channel} || {Channel, _, _} <- lists:sublist(Consuming, ?BROKER_CLIENTS)] end,
    Clients = lists:ukeysort(4, Channels ++ Others),
    maps:merge(maps:merge(maps:merge(Now, Known), bounds_of(record_of(Queue))),
               Sent#{name => queue_title(VHost, Name),
                     clients => [{ClientName, User, Before, Again, Acks, unacked_of(Channel)}
                                 || {Again, Before, Acks, Channel} <- lists:sublist(Clients, 2 * ?BROKER_CLIENTS),
                                    {ClientName, User} <- [client_of(Channel)]]});
queue_row(_, _, _, _) -> undefined.

%% Labels the queue's process, found in Mnesia's table of queues or in Khepri's copy. Before OTP 26.2 a process with a large heap is not asked.
title_of({resource, VHost, queue, Name} = Queue) ->
    case record_of(Queue) of
        Row when is_pid(element(7, Row)) -> [{element(7, Row), maps:get(label, titled(<<"queue ">>, queue_title(VHost, Name)))}];
        _ -> []
    end;
title_of(_) -> [].

record_of(Queue) ->
    Rows = [Row || Table <- [rabbit_queue, rabbit_khepri_queue], ets:info(Table, size) =/= undefined,
                   Row <- try ets:lookup(Table, Queue) catch error:_ -> [] end],
    case Rows of
        [Row | _] when element(1, Row) =:= amqqueue, tuple_size(Row) >= 12 -> Row;
        _ -> undefined
    end.

%% Limits on a queue's growth: arguments of its declaration, and policies (amqqueue_v2.hrl).
bounds_of(undefined) -> #{};
bounds_of(Row) ->
    Arguments = case element(6, Row) of Given when is_list(Given) -> Given; _ -> [] end,
    Definitions = [Definition || Policy <- [element(11, Row), element(12, Row)], is_list(Policy),
                                 Definition <- [value_of(definition, Policy)], is_list(Definition)],
    Min = fun(Key) ->
                Values = [V || {K, _, V} <- Arguments, K =:= <<"x-", Key/binary>>]
                    ++ [V || Definition <- Definitions, {K, V} <- Definition, K =:= Key],
                case [V || V <- Values, is_integer(V), V >= 0] of [] -> undefined; Numbers -> lists:min(Numbers) end
            end,
    maps:from_list([{Name, V * Unit} || {Name, Key, Unit} <- [{ttl_ns, <<"message-ttl">>, 1000000}, {max_length, <<"max-length">>, 1}],
                                        V <- [Min(Key)], is_integer(V)]).

unacked_of(Channel) ->
    case row(channel_metrics, Channel) of
        undefined -> 0;
        Infos -> case value_of(messages_unacknowledged, Infos) of N when is_integer(N) -> N; _ -> 0 end
    end.

queue_title(<<"/">>, Name) -> bin(Name);
queue_title(VHost, Name) -> cut(<<(bin(Name))/binary, " in vhost ", (bin(VHost))/binary>>, ?NAME_BYTES).

%% Sums over all protocols and kinds of queues, since 3.9; the function reads a few counters and makes no call to a process.
messages() ->
    Names = [{messages_received_total, published}, {messages_confirmed_total, confirmed}, {messages_unroutable_dropped_total, unroutable},
             {messages_unroutable_returned_total, unroutable}, {messages_delivered_total, delivered},
             {messages_redelivered_total, redelivered}, {messages_acknowledged_total, acknowledged}, {messages_get_empty_total, empty_gets}],
    try
        true = erlang:function_exported(rabbit_global_counters, overview, 0),
        Groups = maps:to_list(rabbit_global_counters:overview()),
        Sum = fun(Counter) -> lists:sum([N || {_, Group} <- Groups, N <- [maps:get(Counter, Group, 0)], is_integer(N)]) end,
        maps:merge(lists:foldl(fun({Counter, Name}, Sums) -> merge(Name, Sum(Counter), fun erlang:'+'/2, Sums) end, #{}, Names),
                   dead_letters(Groups))
    catch _:_ -> #{}
    end.

%% Since 3.10 in groups by type of queue and dead letter strategy. Those with the strategy `disabled' count dropped messages, since their
%% queue has no dead letter exchange.
dead_letters(Groups) ->
    Names = [{messages_dead_lettered_expired_total, dead_lettered_expired}, {messages_dead_lettered_rejected_total, dead_lettered_rejected},
             {messages_dead_lettered_maxlen_total, dead_lettered_maxlen},
             {messages_dead_lettered_delivery_limit_total, dead_lettered_delivery_limit}],
    maps:from_list([{Name, lists:sum(Counts)}
                    || {Counter, Name} <- Names,
                       [_ | _] = Counts <- [[N || {Labels, #{Counter := N}} <- Groups, is_integer(N), is_list(Labels),
                                                  not lists:member({dead_letter_strategy, disabled}, Labels)]]]).

%% Values that the plugin management_agent stores for this node each five seconds.
alarms() ->
    Node = case catch row(node_metrics, node()) of [_ | _] = Infos -> Infos; _ -> [] end,
    Coarse = case catch row(node_coarse_metrics, node()) of [_ | _] = Used -> Used; _ -> [] end,
    Numbers = [{memory_limit, value_of(mem_limit, Node)}, {disk_limit, value_of(disk_free_limit, Node)},
               {disk_free, value_of(disk_free, Coarse)}],
    Alarms = [{memory_alarm, value_of(mem_alarm, Node)}, {disk_alarm, value_of(disk_free_alarm, Node)}],
    maps:from_list([{K, V} || {K, V} <- Numbers, is_integer(V), V >= 0]
                   ++ [{K, case V of true -> 1; false -> 0 end} || {K, V} <- Alarms, is_boolean(V)]).
