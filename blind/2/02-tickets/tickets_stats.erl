-module(tickets_stats).
-behaviour(gen_server).
-export([start_link/0, done/1, read/0, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
done(Us) -> gen_server:cast(?MODULE, {done, Us}).
%% {Requests, average ms, maximum ms} since the last call
read() -> gen_server:call(?MODULE, read).
init([]) -> {ok, {0, 0, 0}}.
handle_cast({done, Us}, {N, Sum, Max}) -> {noreply, {N + 1, Sum + Us, max(Max, Us)}}.
handle_call(read, _, {N, Sum, Max}) -> {reply, {N, Sum / max(N, 1) / 1000, Max / 1000}, {0, 0, 0}}.
