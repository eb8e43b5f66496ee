%% Perceptual hashes, in C.
-module(phash).
-export([hash/3]).
-on_load(load/0).

load() -> erlang:load_nif(filename:join(os:getenv("PRIV_DIR"), "phash"), 0).

hash(Pixels, W, H) -> hash_nif(Pixels, W, H, 9).

hash_nif(_Pixels, _W, _H, _Radius) -> erlang:nif_error(not_loaded).
