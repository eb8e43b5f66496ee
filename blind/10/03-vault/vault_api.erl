-module(vault_api).
-export([answer/1]).

answer([<<"get">>, K]) ->
    case vault_vnode:get(K) of
        {ok, V} -> [<<"found ">>, integer_to_binary(byte_size(V))];
        none -> <<"none">>
    end;
answer([<<"put">>, K, V]) ->
    ok = vault_vnode:put(K, V),
    <<"stored">>.
