-module(library_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one},
          [#{id => catalogue, start => {library_catalogue, start_link, []}},
           #{id => readers, start => {library_readers, start_link, []}, type => supervisor}]
          ++ [#{id => {desk, I}, start => {library_desk, start_link, [I]}} || I <- lists:seq(1, 10)]}}.
