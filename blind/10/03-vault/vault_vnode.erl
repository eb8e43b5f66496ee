%% One partition of the store.
-module(vault_vnode).
-behaviour(gen_server).
-export([start_link/1, name/1, get/1, put/2, buckets/1, init/1, handle_call/3, handle_cast/2]).

name(I) -> list_to_atom("vault_vnode_" ++ integer_to_list(I)).
start_link(I) -> gen_server:start_link({local, name(I)}, ?MODULE, I, []).

get(Key) -> gen_server:call(where(Key), {get, Key}).
put(Key, Value) -> gen_server:call(where(Key), {put, Key, Value}).
buckets(I) -> gen_server:call(name(I), fold_buckets, 30000).

where(Key) -> name(erlang:phash2(Key, 4)).

init(I) ->
    T = ets:new(vault_data, [set, private]),
    [begin
         K = <<B/binary, "/", (integer_to_binary(N))/binary>>,
         erlang:phash2(K, 4) =:= I andalso ets:insert(T, {K, {N, 1}, <<0:800>>})
     end || B <- [<<"docs">>, <<"mail">>, <<"logs">>, <<"pics">>], N <- lists:seq(0, 159999)],
    {ok, #{table => T, index => I}}.

handle_call({get, Key}, _, #{table := T} = S) ->
    vault_stats:count(get),
    case ets:lookup(T, Key) of
        [{_, _, V}] -> {reply, {ok, V}, S};
        [] -> {reply, none, S}
    end;
handle_call({put, Key, Value}, _, #{table := T} = S) ->
    vault_stats:count(put),
    ets:insert(T, {Key, {erlang:system_time(second), 1}, Value}),
    {reply, ok, S};
handle_call(fold_buckets, _, #{table := T} = S) ->
    {reply, by_bucket(T), S}.

handle_cast(_, S) -> {noreply, S}.

by_bucket(T) ->
    Sets = ets:foldl(fun({Key, Clock, V}, Acc) ->
        [B, K] = binary:split(Key, <<"/">>),
        {N, Size, Hash} = maps:get(B, Acc, {0, 0, 0}),
        Acc#{B => {N + 1, Size + byte_size(V), Hash bxor erlang:phash2({K, Clock})}}
    end, #{}, T),
    maps:to_list(Sets).
