%% Attempts to connect to other nodes, from net_kernel's table of connections, which has one row per node. The row exists and is `pending'
%% during an attempt: for milliseconds if the node is gone or refuses, for net_setuptime if nothing answers. So the table is sampled with
%% each item of a sample, and in between. net_kernel itself is not called.

%% Maximum number of nodes whose attempts are counted, of nodes reported, and of rows read at once.
-define(ATTEMPTED, 100).
-define(ATTEMPTED_ROWS, 20).
-define(PENDING, 20).
%% A table with more rows is sampled once per sample only.
-define(MAX_SAMPLED_NODES, 200).
%% A connection's number counts attempts (connection_id of a DistEntry, 24 bits). It restarts at an arbitrary value when the VM has forgotten
%% the node, a minute after its last use: so a growth by more than this per second is ignored (judgement; an attempt takes at least 0.5 ms).
-define(ATTEMPTS_PER_S, 3000).
-define(ATTEMPT_BITS, 16#ffffff).
%% Maximum number of names of requesting processes kept per node, and number of attempts per sample whose requesting process and step are read.
-define(ASKERS, 4).
-define(ASKED_IN_SAMPLE, 2).
%% A node is removed after this many readings of `dist' without an attempt.
-define(FORGET_AFTER, 6).
%% With more known nodes, unconnected ones are not listed.
-define(KNOWN_NODES, 5000).

%% The record `connection' of net_kernel.erl (OTP 23 to 29): node, conn_id, state and owner are the elements 2 to 5, address is the 8th, waiting
%% the 9th. The address has a protocol (its 4th element) only in attempts by this node. No process waits for an attempt that was caused by
%% sending a message.
-define(PENDING_IN(Guard, Asker),
        {'_', [{'=:=', {element, 1, '$_'}, connection}, {'=:=', {element, 4, '$_'}, pending}, {Guard, {element, 9, '$_'}, []}],
         [{{{element, 2, '$_'}, {element, 1, {element, 3, '$_'}}, {'=/=', {element, 4, {element, 8, '$_'}}, undefined},
            {length, {element, 9, '$_'}}, {element, 5, '$_'}, Asker}}]}).

%% {node, number of the connection} of connected nodes.
-define(UP, {'_', [{'=:=', {element, 1, '$_'}, connection}, {'=:=', {element, 4, '$_'}, up}],
             [{{{element, 2, '$_'}, {element, 1, {element, 3, '$_'}}}}]}).

%% Called with each item, and cheap if nothing is pending; connected nodes are read once per sample.
sample_connections(#state{connecting = #connecting{looked = Looked} = Connecting} = State) ->
    try
        Rows = pending(Connecting),
        Seen = case Looked of true -> Connecting; false -> connected(Connecting) end,
        lists:foldl(fun add_pending/2, State#state{connecting = Seen#connecting{looked = true}}, Rows)
    catch error:_ -> State
    end.

%% A new number is a new connection. Hidden nodes are left out, since tools connect and disconnect.
connected(#connecting{up = Before, again = {Samples, Counts}} = Connecting) ->
    case ets:info(sys_dist, size) of
        Rows when is_integer(Rows), Rows > 0, Rows =< ?MAX_SAMPLED_NODES ->
            Visible = nodes(),
            Up = maps:from_list([{Node, Number} || {Node, Number} <- ets:select(sys_dist, [?UP]), lists:member(Node, Visible)]),
            Again = case [Node || {Node, Number} <- maps:to_list(Up), maps:get(Node, Before, Number) =/= Number] of
                        [] -> {Samples, Counts};
                        Nodes -> {Samples + 1, lists:foldl(fun(Node, Map) -> merge(Node, 1, fun erlang:'+'/2, Map) end, Counts, Nodes)}
                    end,
            Known = case map_size(Before) =< ?MAX_SAMPLED_NODES of true -> Before; false -> #{} end,
            Connecting#connecting{up = maps:merge(Known, Up), again = Again};
        _ -> Connecting
    end.

next_sample(#connecting{sample = Sample, samples = Samples} = Connecting) ->
    Connecting#connecting{sample = Sample + 1, samples = Samples + 1, looked = false, asked = 0}.

%% If there are no more rows than connected nodes, none is pending.
pending(#connecting{looked = Looked}) ->
    case ets:info(sys_dist, size) of
        Rows when is_integer(Rows), Rows =< ?MAX_SAMPLED_NODES orelse not Looked ->
            case Rows > length(nodes(connected)) andalso
                 ets:select(sys_dist, [?PENDING_IN('=:=', undefined), ?PENDING_IN('=/=', {element, 1, {hd, {element, 9, '$_'}}})], ?PENDING) of
                {Found, _} -> [Row || {Node, Number, _, _, _, _} = Row <- Found, is_atom(Node), is_integer(Number)];
                _ -> []
            end;
        _ -> []
    end.

%% When a new attempt is seen, all attempts since the last one seen are counted.
add_pending({Node, Number, IsOut, Waiting, Owner, Asker}, #state{connecting = #connecting{nodes = Known} = Connecting} = State) ->
    case Known of
        #{Node := #attempts{number = Number} = Attempts} -> keep(Node, seen_pending(Waiting, Connecting, Attempts), State);
        #{Node := #attempts{number = Before, at_ns = At} = Attempts} ->
            Now = now_ns(),
            More = case (Number - Before) band ?ATTEMPT_BITS of
                       Grown when Grown =< 1 + ?ATTEMPTS_PER_S * (Now - At) div 1000000000 -> Grown;
                       _ -> 1
                   end,
            attempt(Node, IsOut, {Owner, Asker}, More, seen_pending(Waiting, Connecting, Attempts#attempts{number = Number, at_ns = Now}), State);
        _ when map_size(Known) < ?ATTEMPTED ->
            attempt(Node, IsOut, {Owner, Asker}, 1, seen_pending(Waiting, Connecting, #attempts{number = Number, at_ns = now_ns()}), State);
        _ -> State
    end.

seen_pending(Waiting, #connecting{sample = Sample}, #attempts{sample = Sample, waiting = Most} = Attempts) ->
    Attempts#attempts{waiting = max(Waiting, Most)};
seen_pending(Waiting, #connecting{sample = Sample}, #attempts{samples = Samples, waiting = Most} = Attempts) ->
    Attempts#attempts{sample = Sample, samples = Samples + 1, waiting = max(Waiting, Most)}.

attempt(Node, true, Who, More, #attempts{count = Count, out = Out} = Attempts, State) ->
    describe_attempt(Node, Who, Attempts#attempts{count = Count + More, out = Out + 1}, State);
attempt(Node, _, _, More, #attempts{count = Count, in = In} = Attempts, State) ->
    keep(Node, Attempts#attempts{count = Count + More, in = In + 1}, State).

%% The requesting process waits for net_kernel's answer; the owner is the process that sets up the connection.
describe_attempt(Node, {Owner, Asker}, #attempts{askers = Askers, steps = Steps} = Attempts,
            #state{connecting = #connecting{asked = Asked} = Connecting, features = Features} = State) when Asked < ?ASKED_IN_SAMPLE ->
    Found = details(fun({asker, Pid}) -> #{asker => maker(Pid, Features)}; ({owner, Pid}) -> step_of(Pid) end,
                    [{owner, Owner} || is_pid(Owner)] ++ [{asker, Asker} || is_pid(Asker), node(Asker) =:= node()],
                    State#state{deadline_ns = now_ns()}),
    Named = [Title || {_, #{asker := Title}} <- Found, Title =/= <<>>, map_size(Askers) < ?ASKERS orelse is_map_key(Title, Askers)],
    Count = fun(Keys, Map) -> lists:foldl(fun(Key, Counts) -> merge(Key, 1, fun erlang:'+'/2, Counts) end, Map, Keys) end,
    keep(Node, Attempts#attempts{askers = Count(Named, Askers), steps = Count([Step || {_, #{step := Step}} <- Found], Steps)},
         State#state{connecting = Connecting#connecting{asked = Asked + 1}});
describe_attempt(Node, _, Attempts, State) -> keep(Node, Attempts, State).

%% The step of the connection setup, by the modules on the stack; the first match counts.
step_of(Pid) ->
    case process_info(Pid, current_stacktrace) of
        {_, Stack} ->
            Modules = [M || {M, _, _, _} <- Stack],
            Is = fun(Some) -> lists:any(fun(M) -> lists:member(M, Some) end, Modules) end,
            #{step => case {Is([inet_gethost_native, inet_res]), Is([erl_epmd]), Is([dist_util]), Is([ssl, ssl_gen_statem, tls_gen_connection])} of
                          {true, _, _, _} -> resolve;
                          {_, true, _, _} -> epmd;
                          {_, _, true, _} -> handshake;
                          {_, _, _, true} -> tls;
                          _ -> connect
                      end};
        undefined -> undefined
    end.

keep(Node, Attempts, #state{connecting = #connecting{nodes = Known} = Connecting} = State) ->
    State#state{connecting = Connecting#connecting{nodes = Known#{Node => Attempts}}}.

%% Attempts since the last reading of `dist', nodes with the most attempts first. A single incoming attempt is left out, since command-line tools
%% have a new name each time.
connecting(#state{connecting = #connecting{nodes = Known, samples = Samples, again = {AgainIn, Again}} = Connecting} = State) ->
    Connected = nodes(connected),
    {Once, Others} = lists:partition(fun({_, Attempts}) -> is_visit(Attempts) end, maps:to_list(Known)),
    Ranked = lists:reverse(lists:sort([{Count, Seen, Node} || {Node, #attempts{count = Count, samples = Seen}} <- Others])),
    Rows = [attempts_of(Node, maps:get(Node, Known), Connected) || {_, _, Node} <- lists:sublist(Ranked, ?ATTEMPTED_ROWS)],
    Kept = [{Node, Attempts#attempts{quiet = Quiet + 1}} || {Node, #attempts{quiet = Quiet} = Attempts} <- Once ++ [reported(Row) || Row <- Others],
                                                            Quiet < ?FORGET_AFTER],
    Reconnected = lists:sublist(lists:reverse(lists:sort([{Count, Node} || {Node, Count} <- maps:to_list(Again)])), ?ATTEMPTED_ROWS),
    {#{connecting => #{samples => Samples, rows => Rows, again_samples => AgainIn, again => [{bin(Node), Count} || {Count, Node} <- Reconnected]},
       unconnected => unconnected(Connected)},
     State#state{connecting = Connecting#connecting{nodes = maps:from_list(Kept), samples = 0, again = {0, #{}}}}}.

is_visit(#attempts{count = Count, out = Out, in = In}) -> Count =:= 1 andalso Out =:= 0 andalso In =:= 1.

attempts_of(Node, #attempts{count = Count, samples = Samples, out = Out, in = In, waiting = Waiting, askers = Askers, steps = Steps}, Connected) ->
    #{node => bin(Node), attempts => Count, samples => Samples, out => Out, in => In, waiting => Waiting,
      connected => lists:member(Node, Connected), askers => maps:to_list(Askers), steps => maps:to_list(Steps)}.

reported({Node, #attempts{samples = 0} = Attempts}) -> {Node, Attempts};
reported({Node, Attempts}) ->
    {Node, Attempts#attempts{count = 0, samples = 0, out = 0, in = 0, waiting = 0, askers = #{}, steps = #{}, quiet = 0}}.

%% Nodes that the VM knows and is not connected to: it remembers a node for a minute, and while a pid of it is referenced.
unconnected(Connected) ->
    case nodes(known) of
        Known when length(Known) =< ?KNOWN_NODES ->
            Others = (Known -- [node(), nonode@nohost]) -- Connected,
            #{total => length(Others), nodes => [bin(Node) || Node <- lists:sublist(Others, ?ATTEMPTED_ROWS)]};
        _ -> #{}
    end.
