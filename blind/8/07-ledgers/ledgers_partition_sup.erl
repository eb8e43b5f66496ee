-module(ledgers_partition_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    filelib:ensure_dir(os:getenv("DATA") ++ "/x"),
    {ok, {#{intensity => 20, period => 5}, [#{id => N, start => {ledgers_partition, start_link, [N]}} || N <- lists:seq(0, 127)]}}.
