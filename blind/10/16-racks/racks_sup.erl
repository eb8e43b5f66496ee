-module(racks_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, top).

init(top) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => sessions, type => supervisor, start => {supervisor, start_link, [{local, racks_session_sup}, ?MODULE, sessions]}},
           #{id => alarms, start => {racks_alarms, start_link, []}},
           #{id => listener, start => {racks_listener, start_link, []}}]}};
init(sessions) ->
    {ok, {#{strategy => simple_one_for_one, intensity => 20, period => 10},
          [#{id => session, restart => transient, start => {racks_session, start_link, []}}]}}.
