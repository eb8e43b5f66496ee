-module(lobby_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one},
          [#{id => lobby_flags, start => {lobby_flags, start_link, []}},
           #{id => lobby_presence, start => {lobby_presence, start_link, []}},
           #{id => lobby_session_sup, type => supervisor, start => {lobby_session_sup, start_link, []}}]}}.
