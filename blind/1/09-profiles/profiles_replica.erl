%% Sends each change to the follower at the other site.
-module(profiles_replica).
-behaviour(gen_server).
-export([start_link/1, changed/2, stats/0]).
-export([init/1, handle_call/3, handle_cast/2]).

start_link(Peer) -> gen_server:start_link({local, ?MODULE}, ?MODULE, [Peer], []).
changed(Id, Profile) -> gen_server:cast(?MODULE, {changed, Id, Profile}).
stats() -> gen_server:call(?MODULE, stats).

init([Peer]) -> {ok, #{peer => Peer, sent => 0}}.
handle_call(stats, _From, S) -> {reply, S, S}.
handle_cast({changed, Id, Profile}, S = #{peer := Peer, sent := N}) ->
    {profiles_follower, Peer} ! {replica, node(), Id, Profile},
    {noreply, S#{sent := N + 1}}.
