-module(vault_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 3, period => 10},
          [#{id => {vnode, I}, start => {vault_vnode, start_link, [I]}} || I <- lists:seq(0, 3)] ++
          [#{id => handoff, start => {vault_handoff, start_link, []}},
           #{id => stats, start => {vault_stats, start_link, []}},
           #{id => listener, start => {vault_listener, start_link, []}}]}}.
