-module(postcards_scale).
-export([scale/2]).
-on_load(load/0).
load() -> erlang:load_nif(filename:join(filename:dirname(code:which(?MODULE)), "postcards_scale"), 0).
scale(_, _) -> erlang:nif_error(not_loaded).
