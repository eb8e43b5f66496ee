%% The votes of the viewers. Plain processes: senders -> votes_tally -> votes_journal
-module(votes).
-export([start/1, senders/1, tally/0, journal/1, results/0, sums/0]).

start(Backlog) ->
    spawn(fun() ->
        register(votes, self()),
        ets:new(votes_sums, [named_table, public]),
        register(votes_journal, spawn_link(?MODULE, journal, [os:getenv("JOURNAL")])),
        register(votes_tally, spawn_link(?MODULE, tally, [])),
        register(votes_results, spawn_link(?MODULE, results, [])),
        %% the call-centres deliver what came in while the line was down
        [votes_tally ! vote(I) || I <- lists:seq(1, Backlog)],
        [spawn_link(?MODULE, senders, [I]) || I <- lists:seq(1, 40)],
        receive stop -> ok end
    end).

vote(I) -> {vote, I rem 12, {phone, 4900000 + I, I rem 7}, erlang:system_time(millisecond)}.

%% 40 call-centres, some 50 votes a second each
senders(C) ->
    timer:sleep(90 + rand:uniform(20)),
    [votes_tally ! vote(C * 100000 + rand:uniform(90000)) || _ <- lists:seq(1, 5)],
    senders(C).

tally() -> tally(0, [], 0).

tally(Seq, Batch, 4) ->
    votes_journal ! {write, self(), Seq, Batch},
    receive {written, Seq} -> ok end,        % count only what is safe
    [ets:update_counter(votes_sums, Song, 1, {Song, 0}) || {Song, _, _} <- Batch],
    tally(Seq + 1, [], 0);
tally(Seq, Batch, N) ->
    receive
        {vote, Song, Phone, At} -> tally(Seq, [{Song, Phone, At} | Batch], N + 1);
        {sums, From, Ref} ->
            From ! {Ref, ets:tab2list(votes_sums)},
            tally(Seq, Batch, N)
    end.

journal(File) ->
    {ok, F} = file:open(File, [raw, write, {delayed_write, 65536, 1000}]),
    journal(F, 0).
journal(F, Bytes) ->
    receive
        {write, From, Seq, Batch} ->
            B = term_to_binary({Seq, Batch}),
            ok = file:write(F, B),
            From ! {written, Seq},
            if Bytes > 20000000 -> {ok, 0} = file:position(F, 0), ok = file:truncate(F), journal(F, 0);
               true -> journal(F, Bytes + byte_size(B))
            end
    end.

sums() ->
    Ref = make_ref(),
    votes_tally ! {sums, self(), Ref},
    receive {Ref, S} -> S after 10000 -> timeout end.

%% the board in the studio
results() ->
    _ = sums(),
    timer:sleep(1000),
    results().
