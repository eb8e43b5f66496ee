%% Prices: tables are in ETS, the search is done by the process of the connection.
-module(tickets_price).
-behaviour(gen_server).
-export([start_link/0, best/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

best(Hall, N) ->
    %% the hall and the one next to it
    Rows = [R || H <- [Hall rem 12, (Hall + 1) rem 12], R <- ets:match_object(tickets_seats, {{H, '_'}, '_', '_'})],
    Rated = [{score(X, Y, C), {X, Y}, C} || {{_, X}, Y, C} <- Rows],
    Best = lists:sublist(lists:sort(Rated), max(1, N rem 5)),
    {[P || {_, P, _} <- Best], lists:sum([C || {_, _, C} <- Best])}.

score(X, Y, C) -> abs(X - 20) * 3 + Y * 2 + C div 100.

init([]) ->
    tickets_seats = ets:new(tickets_seats, [named_table, ordered_set, protected, {read_concurrency, true}]),
    [ets:insert(tickets_seats, {{H, X}, Y, 2000 + (X * Y) rem 3000}) || H <- lists:seq(0, 11), X <- lists:seq(1, 900), Y <- [X rem 30]],
    erlang:send_after(1000, self(), sell),
    {ok, []}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(sell, S) ->
    [ets:update_element(tickets_seats, {rand:uniform(12) - 1, rand:uniform(900)}, {3, 2000 + rand:uniform(3000)}) || _ <- lists:seq(1, 50)],
    erlang:send_after(1000, self(), sell),
    {noreply, S}.
