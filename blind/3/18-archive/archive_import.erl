-module(archive_import).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> self() ! night, {ok, #{done => false, next => 0}}.
handle_call(done, _, #{done := D} = S) -> {reply, D, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(night, S) ->
    [archive_index:put(N, scan(N)) || N <- lists:seq(1, 400000)],
    Left = archive_index:tidy(),
    garbage_collect(),
    erlang:send_after(100, self(), letter),
    {noreply, S#{done := true, left => Left, next := 400001}};
handle_info(letter, #{next := N} = S) ->
    erlang:send_after(100, self(), letter),
    archive_index:put(N, scan(N)),
    ets:delete(letters, N - 300),
    {noreply, S#{next := N + 1}}.
scan(N) -> binary:copy(<<"letter ", (integer_to_binary(N))/binary, " ">>, 60 + erlang:phash2(N, 180)).
