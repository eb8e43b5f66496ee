-module(translate_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one}, [#{id => memory, start => {translate_memory, start_link, []}}]
          ++ [#{id => {worker, I}, start => {translate_worker, start_link, [I]}} || I <- lists:seq(1, 6)]
          ++ [#{id => {shop, I}, start => {translate_shop, start_link, [I]}} || I <- lists:seq(1, 15)]}}.
