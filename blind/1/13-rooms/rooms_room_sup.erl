-module(rooms_room_sup).
-behaviour(supervisor).
-export([start_link/0, open/1, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
open(Id) -> supervisor:start_child(?MODULE, [Id]).
init([]) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 10, period => 10},
          [#{id => room, start => {rooms_room, start_link, []}}]}}.
