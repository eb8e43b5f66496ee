%% Work with known shares of CPU time: phases a and b take turns, 70 ms and 30 ms long, and measure themselves.
%% Every function of phase a begins with a_, and of phase b with b_.
-module(known_shares).
-export([start/2, a_child/1, b_child/1]).

-define(A_MS, 70).
-define(B_MS, 30).
%% Frames of the deep recursion: 20,000 words of stack are beyond what a sample copies.
-define(DEPTH, 10000).

%% Works for that many seconds; prints when it begins, and the share of phase a at the end.
start(Kind, Seconds) ->
    register(known_shares, self()),
    State = prepare(Kind),
    %% Libraries that are loaded later are unknown to the profile.
    io:format("prepared ~s~n", [Kind]),
    End = now_ms() + Seconds * 1000,
    {A, B} = rounds(Kind, State, End, 0, 0),
    io:format("share ~.6f~n", [A / (A + B)]).

prepare(ets) ->
    Table = ets:new(known_shares, [public]),
    ets:insert(Table, [{I, I} || I <- lists:seq(1, 1000)]),
    Table;
prepare(nif) ->
    {ok, _} = application:ensure_all_started(crypto),
    binary:copy(<<7>>, 10000);
prepare(port) ->
    {ok, Socket} = gen_udp:open(0, [binary, {active, false}, {recbuf, 4096}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Socket),
    {Socket, Port};
prepare(_) ->
    lists:seq(1, 200).

rounds(Kind, State, End, A, B) ->
    T0 = erlang:monotonic_time(),
    _ = a_phase(Kind, State, now_ms() + ?A_MS),
    T1 = erlang:monotonic_time(),
    _ = b_phase(Kind, State, now_ms() + ?B_MS),
    T2 = erlang:monotonic_time(),
    case now_ms() >= End of
        true -> {A + T1 - T0, B + T2 - T1};
        false -> rounds(Kind, State, End, A + T1 - T0, B + T2 - T1)
    end.

now_ms() -> erlang:monotonic_time(millisecond).

a_phase(Kind, State, Until) ->
    _ = a_work(Kind, State),
    case now_ms() >= Until of
        true -> done;
        false -> a_phase(Kind, State, Until)
    end.

b_phase(Kind, State, Until) ->
    _ = b_work(Kind, State),
    case now_ms() >= Until of
        true -> done;
        false -> b_phase(Kind, State, Until)
    end.

%% Generated code only.
a_work(loop, _) -> {a, a_loop(20000, 1)};
%% Frames beyond the copied part of the stack.
a_work(deep, _) -> {a, a_deep(?DEPTH)};
%% Processes that live for less than a millisecond.
a_work(short, _) ->
    {_, Ref} = spawn_monitor(?MODULE, a_child, [10000]),
    receive {'DOWN', Ref, process, _, _} -> ok end;
%% BIFs.
a_work(bif, List) -> {a, [erlang:phash2(List) || _ <- lists:seq(1, 200)]};
%% ETS.
a_work(ets, Table) -> {a, [ets:lookup(Table, I) || I <- lists:seq(1, 1000)]};
%% Garbage collection, of a heap so small that no dirty scheduler does it.
a_work(gc, _) -> {a, [length(a_garbage(1000, [])) || _ <- lists:seq(1, 20)]};
%% A NIF of a library.
a_work(nif, Data) -> {a, [crypto:hash(sha256, Data) || _ <- lists:seq(1, 20)]};
%% A port of the emulator, and the kernel.
a_work(port, {Socket, Port}) -> {a, [gen_udp:send(Socket, {127, 0, 0, 1}, Port, <<0:8000>>) || _ <- lists:seq(1, 50)]}.

b_work(deep, _) -> {b, b_deep(?DEPTH)};
b_work(short, _) ->
    {_, Ref} = spawn_monitor(?MODULE, b_child, [10000]),
    receive {'DOWN', Ref, process, _, _} -> ok end;
b_work(bif, List) -> {b, [term_to_binary(List) || _ <- lists:seq(1, 100)]};
b_work(ets, Table) -> {b, [ets:insert(Table, {I, I, I}) || I <- lists:seq(1, 1000)]};
b_work(_, _) -> {b, b_loop(20000, 1)}.

a_child(N) -> exit({done, a_loop(N, 1)}).
b_child(N) -> exit({done, b_loop(N, 1)}).

a_loop(0, X) -> X;
a_loop(N, X) -> a_loop(N - 1, (X * 31 + N) band 16#3ffffff).

b_loop(0, X) -> X;
b_loop(N, X) -> b_loop(N - 1, (X * 37 + N) band 16#3ffffff).

a_deep(0) -> 0;
a_deep(N) -> 1 + a_deep(N - 1).

b_deep(0) -> 0;
b_deep(N) -> 1 + b_deep(N - 1).

a_garbage(0, List) -> List;
a_garbage(N, List) -> a_garbage(N - 1, [{N, N} | List]).
