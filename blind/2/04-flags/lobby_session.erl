%% One process per player that is signed in.
-module(lobby_session).
-behaviour(gen_server).
-export([start_link/1, input/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
-record(s, {id, history = [], flags, seen = 0}).

start_link(Id) -> gen_server:start_link(?MODULE, Id, []).
input(Pid, What) -> gen_server:call(Pid, {input, What}, 20000).

init(Id) ->
    lobby_presence:here(Id, self()),
    History = [{game, N, [N, Id, N * Id, won, lost, drawn]} || N <- lists:seq(1, 200)],
    erlang:send_after(rand:uniform(4000), self(), beat),
    {ok, #s{id = Id, history = History, flags = maps:get(flags, lobby_flags:all())}}.

handle_call({input, W}, _, #s{history = [_ | H]} = S) ->
    Flags = maps:get(flags, lobby_flags:all()),
    {_, _, Countries} = maps:get({flag, W rem 60 + 1}, Flags),
    H2 = lists:sublist(H, 199) ++ [{game, W, [W, length(Countries), won, lost, drawn, W]}],
    {reply, ok, S#s{history = H2, flags = Flags, seen = S#s.seen + 1}}.
handle_cast(_, S) -> {noreply, S}.
handle_info(beat, S) ->
    erlang:send_after(4000, self(), beat),
    {noreply, S#s{flags = maps:get(flags, lobby_flags:all())}}.
