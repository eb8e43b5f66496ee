%% Credit limits of the partners.
-module(purchases_limits).
-behaviour(gen_server).
-export([start_link/0, check/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
check(P, Total) ->
    ets:update_counter(purchases_limits, P, {2, round(Total)}, {P, 0}),
    ok.
init([]) ->
    ets:new(purchases_limits, [named_table, public, {write_concurrency, true}]),
    erlang:send_after(5000, self(), new_day),
    {ok, 1}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(new_day, S) ->
    ets:delete_all_objects(purchases_limits),
    erlang:send_after(60000, self(), new_day),
    {noreply, S + 1}.
