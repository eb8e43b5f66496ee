-module(bookings_rates).
-behaviour(gen_server).
-export([start_link/0, rate/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
rate(Day) -> [{_, P}] = ets:lookup(?MODULE, Day rem 365), P.
init([]) ->
    ets:new(?MODULE, [named_table, {read_concurrency, true}]),
    [ets:insert(?MODULE, {D, 80 + D rem 60}) || D <- lists:seq(0, 364)],
    {ok, none}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
