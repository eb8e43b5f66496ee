%% Which vnode a photo belongs to.
-module(photos_ring).
-export([size/0, vnode/1, name/1, get/1, put/2]).
size() -> 4.
vnode(Key) -> name(erlang:phash2(Key, size())).
name(N) -> list_to_atom("photos_vnode_" ++ integer_to_list(N)).
get(Key) -> gen_server:call(vnode(Key), {get, Key}, 15000).
put(Key, Data) -> gen_server:call(vnode(Key), {put, Key, Data}, 15000).
