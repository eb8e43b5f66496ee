-module(stadium_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => pg, start => {pg, start_link, [stadium_followers]}}] ++
          [#{id => {match, I}, start => {stadium_match, start_link, [I]}} || I <- lists:seq(0, 2)] ++
          [#{id => listener, start => {stadium_listener, start_link, []}}]}}.
