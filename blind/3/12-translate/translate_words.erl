%% splits a text into words (native, it was too slow)
-module(translate_words).
-export([split/1, load/0]).
-on_load(load/0).
load() -> erlang:load_nif(filename:join(filename:dirname(code:which(?MODULE)), "translate_words"), 0).
split(_Text) -> erlang:nif_error(not_loaded).
