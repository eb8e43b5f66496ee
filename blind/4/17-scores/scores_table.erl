%% All players of all leagues in one balanced tree on the heap of this process: read and changed often, never copied.
-module(scores_table).
-behaviour(gen_server).
-export([start_link/0, goal/1, player/1, best/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], [{spawn_opt, [{min_heap_size, 12000000}, {fullsweep_after, 1000}]}]).
goal(N) -> gen_server:cast(?MODULE, {goal, N}).
player(N) -> gen_server:call(?MODULE, {player, N}).
best(N) -> gen_server:call(?MODULE, {best, N}).
init([]) -> {ok, gb_trees:from_orddict([{N, {<<"player">>, N rem 400, 0, []}} || N <- lists:seq(1, 250000)])}.
handle_call({player, N}, _, T) -> {reply, gb_trees:get(1 + N rem 250000, T), T};
handle_call({best, N}, _, T) ->
    {reply, best(gb_trees:iterator_from(1 + N rem 200000, T), 30, 0), T}.
handle_cast({goal, N}, T) ->
    {B, L, G, H} = gb_trees:get(1 + N rem 250000, T),
    {noreply, gb_trees:update(1 + N rem 250000, {B, L, G + 1, lists:sublist([G | H], 5)}, T)}.
handle_info(_, S) -> {noreply, S}.
best(_, 0, M) -> M;
best(I, K, M) ->
    case gb_trees:next(I) of
        {_, {_, _, G, _}, I1} -> best(I1, K - 1, max(G, M));
        none -> M
    end.
