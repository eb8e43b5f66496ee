-module(loyalty_stats).
-behaviour(gen_server).
-export([start_link/0, count/1, counts/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
count(ok) -> ets:update_counter(?MODULE, ok, 1);
count({error, Why}) ->
    ets:insert(?MODULE, {last_error, Why}),
    ets:update_counter(?MODULE, error, 1).
%% {booked, not booked, why at last}
counts() -> {ets:lookup_element(?MODULE, ok, 2), ets:lookup_element(?MODULE, error, 2), ets:lookup_element(?MODULE, last_error, 2)}.
init([]) ->
    ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    ets:insert(?MODULE, [{ok, 0}, {error, 0}, {last_error, none}]),
    {ok, []}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
