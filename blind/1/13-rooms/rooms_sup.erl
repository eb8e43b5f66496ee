-module(rooms_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    {ok, {#{strategy => one_for_one},
          [#{id => rooms_room_sup, start => {rooms_room_sup, start_link, []}, type => supervisor}]}}.
