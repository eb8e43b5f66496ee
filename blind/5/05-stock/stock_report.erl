%% how long the tills take; also listens to what Mnesia has to say
-module(stock_report).
-behaviour(gen_server).
-export([start_link/0, sold/1, totals/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
sold(Us) -> gen_server:cast(?MODULE, {sold, Us}).
totals() -> gen_server:call(?MODULE, totals).
init([]) -> {ok, _} = mnesia:subscribe(system), {ok, #{sales => 0, us => 0, max => 0, events => 0}}.
handle_call(totals, _, S) -> {reply, S, S#{max => 0}}.
handle_cast({sold, Us}, S = #{sales := N, us := T, max := M}) -> {noreply, S#{sales => N + 3, us => T + Us, max => max(M, Us)}}.
handle_info({mnesia_system_event, _}, S = #{events := E}) -> {noreply, S#{events => E + 1}}.
