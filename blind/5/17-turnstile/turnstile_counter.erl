-module(turnstile_counter).
-behaviour(gen_server).
-export([start_link/0, passed/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
passed(Gate) -> counters:add(persistent_term:get(turnstile_counts), Gate, 1).
init([]) ->
    persistent_term:put(turnstile_counts, counters:new(64, [])),
    {ok, _} = timer:send_interval(1000, sum),
    {ok, []}.
handle_call(sums, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(sum, S) -> {noreply, lists:sublist([lists:sum([counters:get(persistent_term:get(turnstile_counts), G) || G <- lists:seq(1, 64)]) | S], 300)}.
