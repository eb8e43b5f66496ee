%% A room keeps the last messages (for those who come in and scroll back), and who wrote how much.
-module(rooms_room).
-behaviour(gen_server).
-export([start_link/1, say/3, recent/2]).
-export([init/1, handle_call/3, handle_cast/2]).

-record(msg, {n, at, from, words, reactions = []}).
-record(room, {id, next = 1, history, keep, authors = #{}}).

name(Id) -> list_to_atom("room_" ++ integer_to_list(Id)).
start_link(Id) -> gen_server:start_link({local, name(Id)}, ?MODULE, [Id], []).
say(Id, From, Text) -> gen_server:call(name(Id), {say, From, Text}, 20000).
recent(Id, N) -> gen_server:call(name(Id), {recent, N}, 20000).

init([Id]) ->
    {ok, Keep} = application:get_env(rooms, history),
    %% the history of yesterday
    Old = [#msg{n = -I, at = I, from = I rem 50, words = words(rooms_members:text())} || I <- lists:seq(1, Keep)],
    {ok, #room{id = Id, keep = Keep, history = queue:from_list(Old)}}.

handle_call({say, From, Text}, _From, R = #room{next = N, history = H, authors = A}) ->
    Msg = #msg{n = N, at = os:system_time(second), from = From, words = words(Text)},
    H1 = queue:in(Msg, queue:drop(H)),
    A1 = maps:update_with(From, fun(X) -> X + 1 end, 1, A),
    {reply, {ok, N, render(Msg)}, R#room{next = N + 1, history = H1, authors = A1}};
handle_call({recent, N}, _From, R = #room{history = H}) ->
    {reply, last(H, N), R}.

handle_cast(_, R) -> {noreply, R}.

words(Text) -> [{word, string:lowercase(W), length(W)} || W <- string:lexemes(Text, " ")].

render(#msg{n = N, from = F, words = Ws}) ->
    lists:flatten(io_lib:format("~b: <~b> ~ts", [N, F, [[W, $ ] || {word, W, _} <- Ws]])).

last(H, N) -> [render(M) || M <- lists:reverse(lists:sublist(lists:reverse(queue:to_list(H)), N))].
