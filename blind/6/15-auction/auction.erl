%% An auction house: bids come over the network in bursts when a lot is about to be knocked down; the auctioneer of each
%% hall puts them in order; watchers see each new highest bid.
-module(auction).
-export([start/0]).

start() ->
    spawn(fun() ->
        register(auction, self()),
        ets:new(auction_lots, [named_table, public, {read_concurrency, true}, {write_concurrency, true}]),
        [ets:insert(auction_lots, {L, 0, nobody}) || L <- lists:seq(1, 3000)],
        [register(hall(H), spawn_link(fun() -> auctioneer(H, #{}, [], 0) end)) || H <- lists:seq(1, 3)],
        register(auction_ledger, spawn_link(fun() -> ledger(0, [], 0) end)),
        [spawn_link(fun() -> watcher(W) end) || W <- lists:seq(1, 8000)],
        {ok, S} = gen_tcp:listen(0, [binary, {packet, 4}, {active, false}, {ip, {127, 0, 0, 1}}]),
        {ok, P} = inet:port(S),
        ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
        accept(S)
    end).

hall(N) -> list_to_atom("auction_hall_" ++ integer_to_list(N)).

accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(fun() -> receive go -> house(S) end end),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(L).

%% a bidding platform; sends parcels of bids, gets one answer for each parcel
house(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, Parcel} ->
            Bids = [{Lot, Amount, Who} || <<Lot:16, Amount:32, Who:32>> <= Parcel],
            [hall(Lot rem 3 + 1) ! {bid, self(), B} || {Lot, _, _} = B <- Bids],
            Won = collect(length(Bids), 0),
            ok = gen_tcp:send(S, <<Won:32>>),
            house(S);
        {error, _} -> gone
    end.

collect(0, Won) -> Won;
collect(N, Won) -> receive {done, true} -> collect(N - 1, Won + 1); {done, false} -> collect(N - 1, Won) end.

auctioneer(H, Seen, Watchers, N) ->
    receive
        {watch, Pid} -> auctioneer(H, Seen, [Pid | Watchers], N);
        {bid, From, {Lot, Amount, Who}} ->
            Highest = maps:get(Lot, Seen, 0),
            Better = Amount > Highest andalso serious(Amount, Who),
            From ! {done, Better},
            case Better of
                true ->
                    ets:insert(auction_lots, {Lot, Amount, Who}),
                    auction_ledger ! {sold, Lot, Amount, Who},
                    N rem 4000 =:= 0 andalso [W ! {lot, Lot, Amount} || W <- Watchers],
                    auctioneer(H, Seen#{Lot => Amount}, Watchers, N + 1);
                false -> auctioneer(H, Seen, Watchers, N + 1)
            end;
        {new_day, From} -> From ! ok, auctioneer(H, #{}, Watchers, N)
    end.

%% is the signature right
serious(Amount, Who) -> erlang:crc32(term_to_binary({Amount, Who, lists:seq(1, 700)})) > 40000000.

ledger(N, Last, K) when K >= 20000 -> ledger(N, lists:sublist(Last, 2000), 2000);
ledger(N, Last, K) ->
    receive
        {sold, Lot, Amount, Who} -> ledger(N + Amount, [{Lot, Amount, Who} | Last], K + 1);
        {sum, From} -> From ! {sum, N}, ledger(N, Last, K)
    after 20000 -> ledger(N, [], 0)
    end.

watcher(W) ->
    hall(W rem 3 + 1) ! {watch, self()},
    watch(0).
watch(N) -> receive {lot, _, _} -> watch(N + 1) after 8000 -> erlang:hibernate(erlang, apply, [fun watch/1, [N]]) end.
