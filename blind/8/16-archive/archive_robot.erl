%% The tape robot. A request waits for its tape; the drive of shard 7 has been sent away for repair.
-module(archive_robot).
-behaviour(gen_server).
-export([start_link/0, bring/3, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
bring(Shard, Bucket, To) -> gen_server:cast(?MODULE, {bring, Shard, Bucket, To}).
init([]) -> {ok, #{drives => [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12], wanted => []}}.
handle_call(wanted, _, S) -> {reply, maps:get(wanted, S), S}.
handle_cast({bring, Shard, Bucket, To}, S = #{drives := D, wanted := W}) ->
    case lists:member(Shard, D) of
        true -> To ! {page, archive_shard, [], last}, {noreply, S};
        false -> {noreply, S#{wanted := lists:usort([{Shard, Bucket} | W])}}
    end.
handle_info(_, S) -> {noreply, S}.
