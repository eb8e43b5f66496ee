-module(profiles_follower).
-behaviour(gen_server).
-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> {ok, 0}.
handle_call(session, _From, N) -> {reply, {ok, N}, N}.
handle_cast(_, N) -> {noreply, N}.
handle_info({replica, _From, Id, Profile}, N) ->
    profiles_store:write(Id, Profile),
    {noreply, N + 1};
handle_info(_, N) -> {noreply, N}.
