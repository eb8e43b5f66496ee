-module(translate_worker).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2, translate/2]).
start_link(I) -> gen_server:start_link({local, name(I)}, ?MODULE, I, []).
name(I) -> list_to_atom("translate_worker_" ++ integer_to_list(I)).
translate(I, Text) -> gen_server:call(name(I), {translate, Text}).
init(I) -> {ok, #{id => I, done => 0, plain => 0}}.
handle_call({translate, Text}, _, #{done := D, plain := P} = S) ->
    case translate_words:split(Text) of
        {ok, Ws} -> {reply, {ok, iolist_to_binary(lists:join($\s, [translate_memory:word(W) || W <- Ws]))}, S#{done := D + 1}};
        %% such texts are left as they are
        {error, too_long} -> {reply, {ok, Text}, S#{plain := P + 1}}
    end;
handle_call(counts, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
