%% One child for each call; a call that crashes is taken up again.
-module(calls_sup).
-behaviour(supervisor).
-export([start_link/0, init/1, new/2]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
new(Id, Invite) ->
    supervisor:start_child(?MODULE, #{id => {call, Id}, start => {calls_call, start_link, [Id, Invite]},
                                      restart => transient, shutdown => 2000}).
init([]) -> {ok, {#{strategy => one_for_one, intensity => 100, period => 10}, []}}.
