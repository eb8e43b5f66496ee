-module(meters_session_sup).
-behaviour(supervisor).
-export([start_link/0, open/1, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
open(Id) -> supervisor:start_child(?MODULE, [Id]).
init([]) ->
    {ok, {#{strategy => simple_one_for_one},
          [#{id => session, start => {meters_session, start_link, []}, restart => transient}]}}.
