%% The lots, the highest bids and who wants to hear of them.
-module(auction_lots).
-behaviour(gen_server).
-export([start_link/0, highest/1, bid/2, follow/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

highest(Lot) ->
    case ets:lookup(auction_bids, Lot) of
        [{_, B}] -> B;
        [] -> 0
    end.

bid(Lot, Amount) -> gen_server:call(?MODULE, {bid, Lot, Amount}).
follow(Lot) -> gen_server:call(?MODULE, {follow, Lot}).

init([]) ->
    ets:new(auction_bids, [named_table, protected, {read_concurrency, true}]),
    ets:insert(auction_bids, [{L, 100} || L <- lists:seq(0, 3999)]),
    {ok, #{}}.

handle_call({bid, Lot, Amount}, _, Followers) ->
    B = highest(Lot) + 1 + Amount rem 10,
    ets:insert(auction_bids, {Lot, B}),
    [Pid ! {bid, Lot, B} || {Pid, _} <- maps:get(Lot, Followers, [])],
    [erlang:demonitor(R, [flush]) || {_, R} <- maps:get(Lot, Followers, [])],
    {reply, B, maps:remove(Lot, Followers)};
handle_call({follow, Lot}, {Pid, _}, Followers) ->
    R = erlang:monitor(process, Pid),
    {reply, ok, maps:update_with(Lot, fun(L) -> [{Pid, R} | L] end, [{Pid, R}], Followers)}.

handle_cast(_, S) -> {noreply, S}.

handle_info({'DOWN', R, process, Pid, _}, S) ->
    {noreply, maps:map(fun(_, L) -> lists:delete({Pid, R}, L) end, S)}.
