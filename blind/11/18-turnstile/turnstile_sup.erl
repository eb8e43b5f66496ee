-module(turnstile_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => rights, start => {turnstile_rights, start_link, []}}] ++
          [#{id => {door, I}, start => {turnstile_door, start_link, [I]}} || I <- lists:seq(0, 24)] ++
          [#{id => listener, start => {turnstile_listener, start_link, []}}]}}.
