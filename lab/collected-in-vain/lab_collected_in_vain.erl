%% A consumer keeps two fields of each packet in a table: sub-binaries that keep the whole packet alive. A guard
%% garbage-collects all processes whenever binaries exceed a limit, uselessly, because the table refers to them. So it
%% runs GCs all the time, also of thousands of unrelated sessions. Healthy: the fields are copied.
-module(lab_collected_in_vain).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).
-define(KB, 1024).
%% The guard pauses for this share of the duration of its last round, so that it is active about half of the time.
-define(PAUSE_PCT, 120).
%% Rounds of the guard before the lab is ready.
-define(WARMUP_ROUNDS, 3).
%% Requests to each session before that, in batches, so that heaps grow to what they need but not further.
-define(WARMUP_REQUESTS, 200).
-define(BATCH, 10).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Sick = lab:sick(Context),
    HeldMb = lab:int(Context, held_mb, 240, 320),
    LimitMb = lab:int(Context, limit_mb, 110, 150),
    LargestKb = lab:int(Context, largest_kb, 150, 300),
    PieceBytes = lab:int(Context, piece_bytes, 70, 160),
    PacketsPerS = lab:int(Context, packets_per_s, 20, 40),
    CheckMs = lab:int(Context, check_ms, 60, 110),
    Sessions = lab:int(Context, sessions, 3000, 3600),
    Fields = lab:int(Context, fields, 220, 300),
    RequestsPerS = lab:int(Context, requests_per_s, 300, 500),
    [Consumer | Others] = Consumers = lab:names(Context, consumers, lab:int(Context, consumers, 3, 5)),
    [Table | OtherTables] = lab:names(Context, tables, length(Consumers)),
    [Guard, Front] = lab:names(Context, jobs, 2),
    Body = lab:binary(LargestKb * ?KB),
    Packet = fun(Id) ->
        Bytes = (LargestKb div 2 + rand:uniform(LargestKb div 2)) * ?KB,
        <<Id:64, Body:Bytes/binary>>
    end,
    Keep = case Sick of true -> fun(Piece) -> Piece end; false -> fun binary:copy/1 end,
    %% On average a packet has three quarters of the maximum size; two sub-binaries of each are kept in one object.
    Rows = HeldMb * ?KB * 4 div (3 * LargestKb),
    Filled = lab:counter(),
    lab:start(Consumer, fun() -> consume(Table, Rows, Packet, PieceBytes, PacketsPerS, Keep, Filled) end),
    %% They read as many packets, and keep copies of a few.
    [
        lab:start(Other, fun() -> consume(OtherTable, 100, Packet, PieceBytes, 5, fun binary:copy/1, Filled) end)
     || {Other, OtherTable} <- lists:zip(Others, OtherTables)
    ],
    lab:wait_until(filled, fun() -> lab:total(Filled) =:= length(Consumers) end),
    Begun = lab:counter(),
    Pids = list_to_tuple([lab:start(fun() -> session(Fields, Begun) end) || _ <- lists:seq(1, Sessions)]),
    lab:wait_until(sessions, fun() -> lab:total(Begun) =:= Sessions end),
    warm_up(tuple_to_list(Pids), Sessions, lab:counter(), ?BATCH),
    Answered = lab:counter(),
    lab:start(Front, fun() ->
        lab:at_rate(RequestsPerS, fun(Due) ->
            [element(rand:uniform(Sessions), Pids) ! {request, Answered} || _ <- lists:seq(1, Due)]
        end)
    end),
    Rounds = lab:counter(),
    lab:start(Guard, fun() -> guard(LimitMb * ?MB, CheckMs, Rounds) end),
    lab:wait_until(answered, fun() -> lab:total(Answered) > RequestsPerS end),
    case Sick of
        true -> lab:wait_until(rounds, fun() -> lab:total(Rounds) >= ?WARMUP_ROUNDS end);
        false -> lab:wait_until(below, fun() -> erlang:memory(binary) < LimitMb * ?MB div 2 end)
    end,
    #{
        sick => lab:culprit(Context, Consumer),
        details => #{
            consumer => Consumer, table => Table, guard => Guard, front => Front,
            consumers => {list, lab:shuffle(Context, order, Consumers)}, rows => Rows, held_mb => HeldMb, limit_mb => LimitMb,
            largest_kb => LargestKb, piece_bytes => PieceBytes, packets_per_s => PacketsPerS, check_ms => CheckMs,
            sessions => Sessions, fields => Fields, requests_per_s => RequestsPerS
        }
    }.

%% The number of objects is constant: each packet replaces another one.
consume(Table, Rows, Packet, PieceBytes, PerS, Keep, Filled) ->
    Table = ets:new(Table, [named_table, protected]),
    Insert = fun(Key) -> ets:insert(Table, row(Key, Packet(Key), PieceBytes, Keep)) end,
    lists:foreach(Insert, lists:seq(1, Rows)),
    lab:count(Filled),
    lab:at_rate(PerS, fun(Due) -> [Insert(rand:uniform(Rows)) || _ <- lists:seq(1, Due)] end).

row(Key, Packet, PieceBytes, Keep) ->
    <<_Id:64, Account:PieceBytes/binary, Text:PieceBytes/binary, _/binary>> = Packet,
    {Key, Keep(Account), Keep(Text), erlang:monotonic_time()}.

guard(LimitBytes, CheckMs, Rounds) -> guard(LimitBytes, CheckMs, Rounds, CheckMs).

%% On a fast host a round takes less time, and the next one starts earlier.
guard(LimitBytes, CheckMs, Rounds, PauseMs) ->
    lab:pause(PauseMs),
    case erlang:memory(binary) > LimitBytes of
        true ->
            {Us, _} = timer:tc(fun() -> [erlang:garbage_collect(Pid) || Pid <- processes()] end),
            lab:count(Rounds),
            guard(LimitBytes, CheckMs, Rounds, max(1, min(CheckMs, Us * ?PAUSE_PCT div 100000)));
        false ->
            guard(LimitBytes, CheckMs, Rounds, CheckMs)
    end.

warm_up(_, _, _, Requests) when Requests > ?WARMUP_REQUESTS ->
    ok;
warm_up(Pids, Sessions, Warm, Requests) ->
    [[Pid ! {request, Warm} || Pid <- Pids] || _ <- lists:seq(1, ?BATCH)],
    lab:wait_until(warm, fun() -> lab:total(Warm) =:= Requests * Sessions end),
    warm_up(Pids, Sessions, Warm, Requests + ?BATCH).

session(Fields, Begun) ->
    State = maps:from_list([{Field, {Field, erlang:monotonic_time()}} || Field <- lists:seq(1, Fields)]),
    %% Frees the garbage of building the state.
    true = erlang:garbage_collect(),
    lab:count(Begun),
    session(State).

%% A request changes one field of the state.
session(State) ->
    receive
        {request, Answered} ->
            Changed = State#{rand:uniform(map_size(State)) := {changed, erlang:monotonic_time()}},
            lab:count(Answered),
            session(Changed)
    end.
