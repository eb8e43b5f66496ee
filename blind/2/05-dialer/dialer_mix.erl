%% Counts the frames per mixer; reads the counters twice a second.
-module(dialer_mix).
-behaviour(gen_server).
-export([start_link/0, rate/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
rate() -> gen_server:call(?MODULE, rate).
init([]) ->
    ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    erlang:send_after(500, self(), read),
    {ok, {0, 0, erlang:monotonic_time(millisecond)}}.
handle_call(rate, _, {_, R, _} = S) -> {reply, R, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(read, {Last, _, T}) ->
    Sum = lists:sum([N || {_, N} <- ets:tab2list(?MODULE)]),
    Now = erlang:monotonic_time(millisecond),
    erlang:send_after(500, self(), read),
    {noreply, {Sum, (Sum - Last) * 1000 div max(1, Now - T), Now}}.
