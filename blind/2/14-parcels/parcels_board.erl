-module(parcels_board).
-behaviour(gen_server).
-export([start_link/0, scanned/1, read/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
scanned(Us) -> gen_server:cast(?MODULE, {scanned, Us}).
%% {parcels, ms on average, ms at most} since the last call
read() -> gen_server:call(?MODULE, read).
init([]) -> erlang:send_after(2000, self(), vans), {ok, {0, 0, 0}}.
handle_cast({scanned, Us}, {N, S, M}) -> {noreply, {N + 1, S + Us, max(M, Us)}}.
handle_call(read, _, {N, S, M}) -> {reply, {N, S / max(1, N) / 1000, M / 1000}, {0, 0, 0}}.
%% what is in the vans at the moment
handle_info(vans, St) -> _ = length(parcels_db:with_status(out)), erlang:send_after(2000, self(), vans), {noreply, St}.
