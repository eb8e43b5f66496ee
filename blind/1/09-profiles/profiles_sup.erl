-module(profiles_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).

start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).

init([]) ->
    Store = #{id => profiles_store, start => {profiles_store, start_link, []}},
    Follower = #{id => profiles_follower, start => {profiles_follower, start_link, []}},
    Children = case application:get_env(profiles, peer) of
        {ok, undefined} -> [Store, Follower];                    % the follower's site
        {ok, Peer} -> [Store, #{id => profiles_replica, start => {profiles_replica, start_link, [Peer]}}]
    end,
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, Children}}.
