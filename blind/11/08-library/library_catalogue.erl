%% 60000 books in a table and an index by letters, made anew every three seconds by a process of low priority.
-module(library_catalogue).
-behaviour(gen_server).
-export([start/0, book/1, search/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start() -> gen_server:start({local, ?MODULE}, ?MODULE, [], []).

book(N) -> ets:lookup(library_books, N).

search(Q) ->
    case ets:lookup(library_index, Q) of
        [{_, Ns}] -> [hd(book(N)) || N <- Ns];
        [] -> []
    end.

init([]) ->
    ets:new(library_books, [named_table, public, {read_concurrency, true}]),
    ets:new(library_index, [named_table, public, {read_concurrency, true}]),
    [ets:insert(library_books, {N, title(N), <<"author ", (integer_to_binary(N rem 700))/binary>>, 1900 + N rem 120, lists:seq(1, 30)}) || N <- lists:seq(0, 59999)],
    self() ! index,
    {ok, #{indexed => 0}}.

title(N) -> <<($a + erlang:phash2(N, 8)), "bout the ", (integer_to_binary(N * 7919))/binary>>.

handle_call(_, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.

handle_info(index, #{indexed := N} = S) ->
    spawn_opt(fun index/0, [{priority, low}, link]),
    erlang:send_after(3000, self(), index),
    {noreply, S#{indexed := N + 1}}.

index() ->
    Words = ets:foldl(fun({N, <<C, _/binary>> = T, _, Y, _}, Acc) ->
        maps:update_with(<<C>>, fun(L) -> [{erlang:phash2({T, Y}), N} | L] end, [{0, N}], Acc)
    end, #{}, library_books),
    maps:foreach(fun(C, L) -> ets:insert(library_index, {C, [N || {_, N} <- lists:sublist(lists:sort(L), 60)]}) end, Words).
