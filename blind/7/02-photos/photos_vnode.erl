%% One part of the ring: its photos are in a table of its own.
-module(photos_vnode).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(N) -> gen_server:start_link({local, photos_ring:name(N)}, ?MODULE, N, []).
init(N) ->
    T = ets:new(photos_data, [set, protected]),
    rand:seed(exsss, {N, 7, 9}),
    Me = photos_ring:name(N),
    [ets:insert(T, {K, rand:bytes(700 + rand:uniform(600)), 1})
     || I <- lists:seq(1, 60000), K <- [<<"photo", (integer_to_binary(I))/binary>>], photos_ring:vnode(K) =:= Me],
    {ok, #{n => N, table => T}}.
handle_call({get, Key}, _, #{table := T} = S) ->
    {reply, case ets:lookup(T, Key) of [{_, D, V}] -> {ok, D, V}; [] -> notfound end, S};
handle_call({put, Key, Data}, _, #{table := T} = S) ->
    V = case ets:lookup(T, Key) of [{_, _, O}] -> O + 1; [] -> 1 end,
    ets:insert(T, {Key, Data, V}),
    {reply, {ok, V}, S}.
%% the other replica wants to know what we have in one segment of the hash tree
handle_cast({segment, Seg, Of, From, Ref}, #{table := T} = S) ->
    Hash = ets:foldl(fun({K, D, V}, Acc) ->
                             case erlang:phash2(K, Of) of
                                 Seg -> crypto:hash_update(Acc, [K, <<V:32>>, crypto:hash(sha256, D)]);
                                 _ -> Acc
                             end
                     end, crypto:hash_init(sha256), T),
    From ! {hash, Ref, Seg, crypto:hash_final(Hash)},
    {noreply, S}.
handle_info(_, S) -> {noreply, S}.
