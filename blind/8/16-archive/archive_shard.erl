%% One shard of the store. Objects of cold buckets lie on tape: the robot brings them when it has a drive.
-module(archive_shard).
-behaviour(gen_server).
-export([start_link/1, all/0, pages/3, next/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link(N) -> gen_server:start_link({local, name(N)}, ?MODULE, N, []).
name(N) -> list_to_atom("archive_shard" ++ integer_to_list(N)).
all() -> [name(N) || N <- lists:seq(1, 12)].
pages(Shard, Bucket, To) -> gen_server:cast(Shard, {pages, Bucket, To}).
next(Shard, To) -> gen_server:cast(Shard, {next, To}).

init(N) -> {ok, #{n => N, open => #{}, asked => 0}}.

handle_call(asked, _, S) -> {reply, maps:get(asked, S), S}.

handle_cast({pages, Bucket, To}, S = #{n := N, open := O, asked := A}) ->
    case tape(N, Bucket) of
        true -> archive_robot:bring(N, Bucket, To), {noreply, S#{asked := A + 1}};
        false -> To ! {page, name(N), keys(N, Bucket, 1), more}, {noreply, S#{open := O#{To => Bucket}, asked := A + 1}}
    end;
handle_cast({next, To}, S = #{n := N, open := O}) ->
    {Bucket, O1} = maps:take(To, O),
    To ! {page, name(N), keys(N, Bucket, 2), last},
    {noreply, S#{open := O1}}.

handle_info(_, S) -> {noreply, S}.

tape(N, Bucket) -> N =:= 7 andalso Bucket rem 9 =:= 0.
keys(N, Bucket, Page) -> [{Bucket, Page, N * 1000 + I, <<"object">>} || I <- lists:seq(1, 60)].
