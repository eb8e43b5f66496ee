%% `ports' and `dist': traffic, queues and owners of ports, the sockets among them, and the distribution connections.

%% Number of random sockets of a part that are checked for an ended owner, and for more.
-define(SAMPLED_SOCKETS, 100).

-record(ports, {dead = 0, in = 0, out = 0, queue = 0, programs = 0, kinds = #{}, owners = #{}, top, traffic,
                seed, sockets = 0, chosen}).

ports(Top, State) ->
    case next_part(ports, State#state.ports, State) of
        {not_yet, Listing} ->
            {(unread(State#state.ports, erlang:system_info(port_count)))#{kinds => [], owners => [], rows => [],
                                                                          sockets => sockets()}, Listing};
        {Part, Begun} -> ports(Top, Part, Begun)
    end.

ports(Top, #round{read_ns = Since} = Part, #state{traffic = Traffic, old_traffic = Old, features = Features} = State) ->
    Read = fun(Port, _) ->
               case [erlang:port_info(Port, I) || I <- [name, connected, input, output, queue_size]] of
                   [{_, Name}, {_, Owner}, {_, In}, {_, Out}, {_, Queue}] -> {{Owner, kind(Name)}, In, Out, Queue, programs(Name, Port)};
                   _ -> undefined
               end
           end,
    {Round, Ports, State1} =
        scan_each(Part, 8, Part#round.total, Read, fun(Port, Reading, Acc) -> add_port(Port, Reading, Old, Acc) end,
                  #ports{top = top(Top), traffic = Traffic, seed = now_ns(), chosen = top(?SAMPLED_SOCKETS)}, State),
    Rows = details(fun(Port) -> port_row(Port, Features) end, [Port || {_, Port} <- top_list(Ports#ports.top)], State1),
    Owners = Ports#ports.owners,
    OwnerRows = details(fun({Pid, _}) -> owner(Pid, Features) end, best(Owners, Top), State1),
    Head = head(Round),
    Value = Head#{programs => Ports#ports.programs, in_bytes => Ports#ports.in, out_bytes => Ports#ports.out, queue_bytes => Ports#ports.queue,
                  kinds => [{Kind, maps:get(Kind, Ports#ports.kinds)} || Kind <- best(Ports#ports.kinds, 20)],
                  owners => [Row#{kind => Kind, ports => maps:get(Key, Owners)} || {{_, Kind} = Key, Row} <- OwnerRows],
                  sockets => sockets(), rows => [with_deltas(Port, Row, Old) || {Port, Row} <- Rows]},
    Result = maps:merge(Value, sampled(Ports, State1)),
    Last = Round#round.rest =:= [],
    {case Old of none -> Result; _ -> Result#{since_ns => Since} end,
     (list_before_next(ports, Round, State1))#state{ports = end_part(Ports#ports.dead, Round),
                  traffic = case Last of true -> #{}; false -> Ports#ports.traffic end,
                  old_traffic = case Last of true -> Ports#ports.traffic; false -> Old end}}.

%% Ranked by traffic since the round before; in the first round by total traffic.
add_port(Port, {{_, Kind} = Owner, In, Out, Queue, Programs}, Old, #ports{top = Top, traffic = Traffic, owners = Owners} = All) ->
    {OldIn, OldOut} = port_before(Port, Old),
    Acc = add_socket(is_socket(Kind), Port, All),
    Acc#ports{programs = Acc#ports.programs + Programs, in = Acc#ports.in + In, out = Acc#ports.out + Out, queue = Acc#ports.queue + Queue,
              kinds = merge(Kind, 1, fun erlang:'+'/2, Acc#ports.kinds),
              owners = Owners#{Owner => maps:get(Owner, Owners, 0) + 1},
              top = top_add(In - OldIn + Out - OldOut + Queue, Port, Top), traffic = Traffic#{Port => {In, Out}}};
add_port(_, hung, _, Acc) -> Acc;
add_port(_, undefined, _, #ports{dead = Dead} = Acc) -> Acc#ports{dead = Dead + 1}.

%% The highest hashes are a random sample, another one each time.
add_socket(false, _, Acc) -> Acc;
add_socket(true, Port, #ports{sockets = Sockets, chosen = Chosen, seed = Seed} = Acc) ->
    Acc#ports{sockets = Sockets + 1, chosen = top_add(erlang:phash2({Port, Seed}), Port, Chosen)}.

is_socket(Kind) -> Kind =:= <<"tcp_inet">> orelse Kind =:= <<"udp_inet">> orelse Kind =:= <<"sctp_inet">>.

%% A port whose owner has ended stays open while its driver has data to send (erts_deliver_port_exit in io.c), or if it is not linked
%% to the owner. This is checked for a sample of sockets; if binaries take much memory, so is the size of their receive buffers.
sampled(#ports{sockets = Sockets, chosen = Chosen}, #state{binary_bytes = Binaries} = State) ->
    IsLarge = Binaries >= ?LARGE_BINARIES,
    Found = details(fun(Port) -> socket(Port, IsLarge) end, [Port || {_, Port} <- top_list(Chosen)], State),
    Queues = [Queue || {_, #{queue := Queue}} <- Found],
    Value = #{ended => #{sockets => Sockets, sampled => length(Found), ended => length(Queues), queue_bytes => lists:sum(Queues)}},
    case IsLarge of
        true ->
            Buffers = [Bytes || {_, #{buffer := Bytes}} <- Found],
            Value#{buffers => #{passive => length(Buffers), bytes => lists:sum(Buffers)}};
        false -> Value
    end.

%% `undefined' if the socket was closed meanwhile.
socket(Port, IsLarge) ->
    case erlang:port_info(Port, connected) of
        {_, Owner} ->
            case is_process_alive(Owner) of
                true when IsLarge -> buffer(Port);
                true -> #{};
                false -> case erlang:port_info(Port, queue_size) of {_, Queue} -> #{queue => Queue}; undefined -> undefined end
            end;
        undefined -> undefined
    end.

%% A connection in passive mode has a receive buffer of this size from a recv call until data arrive (tcp_recv in inet_drv.c), and
%% keeps it after a timeout. The driver answers from its own memory; a closed port answers einval. Other drivers might misinterpret the
%% request.
buffer(Port) ->
    case erlang:port_info(Port, name) of
        {_, "tcp_inet"} ->
            case {catch prim_inet:getstatus(Port), catch inet:getopts(Port, [active, buffer])} of
                {{ok, Status}, {ok, Options}} ->
                    case {lists:member(connected, Status), lists:sort(Options)} of
                        {true, [{active, false}, {buffer, Bytes}]} -> #{buffer => Bytes};
                        _ -> #{}
                    end;
                _ -> #{}
            end;
        {_, _} -> #{};
        undefined -> undefined
    end.

%% Whether an external program is behind the port (1 or 0). Sockets, which may be very many, are not asked.
programs("tcp_inet", _) -> 0;
programs("udp_inet", _) -> 0;
programs(_, Port) -> case erlang:port_info(Port, os_pid) of {_, OsPid} when is_integer(OsPid) -> 1; _ -> 0 end.

port_before(_, none) -> {0, 0};
port_before(Port, Old) -> maps:get(Port, Old, {0, 0}).

%% The port of an external program is named by its command line, which may hold secrets: only the program is reported. Ports
%% of file descriptors are named "0/1".
kind(Name) ->
    case Name -- "0123456789" of
        "/" -> <<"fd">>;
        _ -> cut(bin(lists:takewhile(fun(C) -> C =/= $\s end, Name)), 64)
    end.

port_row(Port, Features) ->
    case [erlang:port_info(Port, I) || I <- [name, input, output, queue_size, connected, os_pid]] of
        [{_, Name}, {_, In}, {_, Out}, {_, Queue}, {_, Owner}, {_, OsPid}] ->
            Row = #{id => id(Port), kind => kind(Name), in_bytes => In, out_bytes => Out, queue_bytes => Queue},
            maps:merge(case OsPid of undefined -> Row; _ -> Row#{os_pid => OsPid} end, owner(Owner, Features));
        _ -> undefined
    end.

with_deltas(_, Row, none) -> Row;
with_deltas(Port, #{in_bytes := In, out_bytes := Out} = Row, Old) ->
    {OldIn, OldOut} = port_before(Port, Old),
    Row#{delta_in_bytes => In - OldIn, delta_out_bytes => Out - OldOut}.

%% The socket NIF's own counters; no socket is asked. Empty if the module `socket' was never used.
sockets() ->
    case erlang:module_loaded(socket) andalso catch socket:info() of
        #{counters := Counters} -> maps:filter(fun(_, V) -> is_integer(V) end, Counters);
        _ -> #{}
    end.

%% From the connection's own port or process; net_kernel is not called, since it may be busy or stuck.
dist(State) ->
    Hidden = nodes(hidden),
    Nodes = lists:sublist(erlang:system_info(dist_ctrl), 200),
    Known = details(fun controller/1, [Controller || {_, Controller} <- Nodes], State),
    {Connecting, Next} = connecting(State),
    {Connecting#{busy_limit_bytes => erlang:system_info(dist_buf_busy_limit), total => length(nodes(connected)), mnesia => mnesia_nodes(),
                 rows => [maps:merge(#{node => bin(Node), hidden => lists:member(Node, Hidden), controller => id(Controller)},
                                     proplists:get_value(Controller, Known, #{})) || {Node, Controller} <- Nodes]}, Next}.

controller(Port) when is_port(Port) ->
    case [erlang:port_info(Port, I) || I <- [name, input, output, queue_size]] of
        [{_, Name}, {_, In}, {_, Out}, {_, Queue}] ->
            (traffic(Name, Port, In, Out))#{queue_bytes => Queue};
        _ -> #{}
    end;
controller(Pid) ->
    case process_info(Pid, [message_queue_len, reductions, status]) of
        [{_, Queue}, {_, Reductions}, {_, Status}] ->
            #{message_queue_len => Queue, reductions => Reductions, status => Status};
        undefined -> #{}
    end.

%% The VM does not count what the distribution sends as a port's output (seen on 23 to 29: only the handshake is counted); the
%% socket's driver does. Other drivers might misinterpret the request.
traffic("tcp_inet", Port, In, Out) ->
    case catch inet:getstat(Port, [recv_oct, send_oct]) of
        {ok, [{recv_oct, Received}, {send_oct, Sent}]} -> #{in_bytes => Received, out_bytes => Sent};
        _ -> #{in_bytes => In, out_bytes => Out}
    end;
traffic(_, _, In, Out) -> #{in_bytes => In, out_bytes => Out}.
