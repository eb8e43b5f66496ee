%% A process that keeps a small part of each large packet. A sub-binary that was matched out of a packet refers to it, and
%% keeps all of it alive. Healthy: the sub-binary is copied, and the packet is freed.
-module(lab_sub_binary_leak).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    HeldMb = lab:int(Context, held_mb, 220, 380),
    SmallestKb = lab:int(Context, smallest_kb, 64, 120),
    LargestKb = lab:int(Context, largest_kb, 300, 1000),
    %% The VM itself copies up to 64 bytes.
    PieceBytes = lab:int(Context, piece_bytes, 70, 160),
    PerS = lab:int(Context, per_s, 10, 30),
    InTable = lab:int(Context, in_table, 0, 0) =:= 1,
    Two = lab:int(Context, holders, 1, 2) =:= 2,
    Keep = keep(lab:sick(Context)),
    [First, Second | Others] = Names = lab:names(Context, processes, lab:int(Context, processes, 4, 7)),
    Body = lab:binary(LargestKb * ?KB),
    Packet = fun(Id) ->
        Bytes = (SmallestKb + rand:uniform(LargestKb - SmallestKb)) * ?KB,
        <<Id:64, Body:Bytes/binary>>
    end,
    Pieces = 2 * HeldMb * ?KB div (SmallestKb + LargestKb),
    %% With two holders the first one has the larger part.
    Shares = case Two of true -> [{First, 70}, {Second, 30}]; false -> [{First, 100}] end,
    Filled = lab:counter(),
    Holders = [
        lab:start(Name, fun() ->
            Store = store(InTable, Name, Keep, PieceBytes, Packet, Pieces * Percent div 100),
            lab:count(Filled),
            hold(Store, Keep, PieceBytes)
        end)
     || {Name, Percent} <- Shares
    ],
    [lab:start(Sender, fun() -> send(Holder, Packet, PerS) end) || {Sender, Holder} <- lists:zip(senders(Context, Shares), Holders)],
    %% Others read packets too, and keep nothing of them.
    [lab:start(Other, fun() -> read(Packet, PieceBytes) end) || Other <- Others ++ [Second || not Two]],
    lab:wait_until(filled, fun() -> lab:total(Filled) =:= length(Holders) end),
    lab:wait_until(held, fun() ->
        case lab:sick(Context) of
            true -> erlang:memory(binary) > HeldMb * ?MB * 3 div 4;
            false -> erlang:memory(binary) < HeldMb * ?MB div 4
        end
    end),
    #{
        sick => lab:culprit(Context, First),
        details => #{
            pid => hd(Holders), holders => {list, [Name || {Name, _} <- Shares]},
            processes => {list, lab:shuffle(Context, order, Names)}, in_table => InTable,
            held_mb => HeldMb, pieces => Pieces, piece_bytes => PieceBytes,
            smallest_kb => SmallestKb, largest_kb => LargestKb, per_s => PerS
        }
    }.

senders(Context, Shares) -> lab:names(Context, senders, length(Shares)).

%% What is kept: the sub-binary when sick, a copy when healthy.
keep(true) -> fun(Piece) -> Piece end;
keep(false) -> fun binary:copy/1.

%% The newest sub-binaries, a constant number.
store(true, Name, Keep, PieceBytes, Packet, Pieces) ->
    Table = ets:new(Name, [set, private]),
    [ets:insert(Table, {Id, Keep(piece(Packet(Id), PieceBytes))}) || Id <- lists:seq(1, Pieces)],
    {table, Table, Pieces};
store(false, _, Keep, PieceBytes, Packet, Pieces) ->
    {state, maps:from_list([{Id, Keep(piece(Packet(Id), PieceBytes))} || Id <- lists:seq(1, Pieces)]), Pieces}.

hold(Store, Keep, PieceBytes) ->
    receive
        {packet, Packet} -> hold(replace(Store, Keep(piece(Packet, PieceBytes))), Keep, PieceBytes)
    end.

replace({table, Table, Pieces}, Piece) ->
    true = ets:insert(Table, {rand:uniform(Pieces), Piece}),
    {table, Table, Pieces};
replace({state, Map, Pieces}, Piece) ->
    {state, Map#{rand:uniform(Pieces) => Piece}, Pieces}.

piece(Packet, PieceBytes) ->
    <<_Id:64, Piece:PieceBytes/binary, _/binary>> = Packet,
    Piece.

send(Holder, Packet, PerS) ->
    lab:at_rate(PerS, fun(Due) -> [Holder ! {packet, Packet(Id)} || Id <- lists:seq(1, Due)] end).

read(Packet, PieceBytes) ->
    lab:at_rate(2, fun(Due) -> [piece(Packet(Id), PieceBytes) || Id <- lists:seq(1, Due)] end).
