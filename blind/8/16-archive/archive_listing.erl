%% Lists the objects of a bucket: asks all shards, merges what they send page by page, and answers.
-module(archive_listing).
-behaviour(gen_statem).
-export([start/2, start_link/2, init/1, callback_mode/0, collecting/3]).
-record(d, {from, bucket, waiting, pages = []}).

start(Bucket, From) -> supervisor:start_child(archive_listing_sup, [Bucket, From]).
start_link(Bucket, From) -> gen_statem:start_link(?MODULE, {Bucket, From}, []).

callback_mode() -> state_functions.

init({Bucket, From}) ->
    Shards = archive_shard:all(),
    [archive_shard:pages(S, Bucket, self()) || S <- Shards],
    {ok, collecting, #d{from = From, bucket = Bucket, waiting = Shards}}.

collecting(info, {page, Shard, Keys, more}, D = #d{pages = P}) ->
    archive_shard:next(Shard, self()),
    {keep_state, D#d{pages = [Keys | P]}};
collecting(info, {page, Shard, Keys, last}, D = #d{waiting = W, pages = P}) ->
    case lists:delete(Shard, W) of
        [] ->
            All = lists:merge([lists:sort(Ks) || Ks <- [Keys | P]]),
            {Pid, Ref} = D#d.from,
            Pid ! {Ref, length(All), lists:sublist(All, 10)},
            {stop, normal};
        W1 -> {keep_state, D#d{waiting = W1, pages = [Keys | P]}}
    end.
