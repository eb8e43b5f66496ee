-module(archive_store_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) -> {ok, {#{}, [#{id => N, start => {archive_shard, start_link, [N]}} || N <- lists:seq(1, 12)]}}.
