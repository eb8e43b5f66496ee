%% collects what has changed and builds the hashes of the groups for the comparison with the other town
-module(bikes_exchange).
-behaviour(gen_server).
-export([start_link/0, changed/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
changed(K, V) -> gen_server:cast(?MODULE, {changed, K, V}).
init([]) -> timer:send_interval(1000, hashes), {ok, #{dirty => #{}, tree => #{}}}.
handle_call(tree, _, S) -> {reply, maps:get(tree, S), S}.
handle_cast({changed, K, V}, S = #{dirty := D}) -> {noreply, S#{dirty := D#{K => V}}}.
handle_info(hashes, S = #{dirty := D, tree := T}) ->
    T1 = maps:fold(fun(K, V, A) -> G = erlang:phash2(K, 64), A#{G => erlang:phash2({maps:get(G, A, 0), K, V})} end, T, D),
    {noreply, S#{dirty := #{}, tree := T1}}.
