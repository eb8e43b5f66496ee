%% Counts, and writes a line each second.
-module(pharmacy_log).
-behaviour(gen_server).
-export([start_link/0, note/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
note(K) -> gen_server:cast(?MODULE, {note, K}).
init([]) -> erlang:send_after(1000, self(), write), {ok, #{}}.
handle_call(_, _, S) -> {reply, S, S}.
handle_cast({note, K}, S) -> {noreply, maps:update_with(K, fun(N) -> N + 1 end, 1, S)}.
handle_info(write, S) ->
    erlang:send_after(1000, self(), write),
    ok = file:write_file(os:getenv("LABELS") ++ "/count", io_lib:format("~p~n", [S])),
    {noreply, S}.
