%% Numbers for the dashboard: count, mean and percentiles of each quantity over the last 20 seconds, twenty times a second.
-module(orders_numbers).
-behaviour(gen_server).
-export([start/0, sample/2, read/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(WINDOW, 20000).
-define(EVERY, 50).

start() -> gen_server:start({local, ?MODULE}, ?MODULE, [], []).

sample(Name, Value) -> gen_server:cast(?MODULE, {sample, Name, Value, erlang:monotonic_time(millisecond)}).
read(Name) -> ets:lookup(?MODULE, Name).

init([]) ->
    ets:new(?MODULE, [named_table, protected]),
    erlang:send_after(?EVERY, self(), work_out),
    {ok, #{}}.

handle_call(names, _, S) -> {reply, maps:keys(S), S}.

handle_cast({sample, Name, Value, Now}, S) ->
    {noreply, S#{Name => [{Now, Value} | maps:get(Name, S, [])]}}.

handle_info(work_out, S) ->
    Old = erlang:monotonic_time(millisecond) - ?WINDOW,
    S1 = maps:map(fun(Name, L) ->
        Kept = [X || {T, _} = X <- L, T > Old],
        ets:insert(?MODULE, {Name, numbers([V || {_, V} <- Kept])}),
        Kept
    end, S),
    erlang:send_after(?EVERY, self(), work_out),
    {noreply, S1}.

numbers([]) -> #{count => 0};
numbers(Vs) ->
    N = length(Vs),
    Mean = lists:sum(Vs) / N,
    #{count => N, mean => Mean, deviation => math:sqrt(lists:sum([(V - Mean) * (V - Mean) || V <- Vs]) / N),
      p5 => percentile(Vs, 5), p10 => percentile(Vs, 10), p25 => percentile(Vs, 25), p50 => percentile(Vs, 50), p75 => percentile(Vs, 75),
      p90 => percentile(Vs, 90), p95 => percentile(Vs, 95), p98 => percentile(Vs, 98), p99 => percentile(Vs, 99), max => percentile(Vs, 100)}.

percentile(Vs, P) ->
    Sorted = lists:sort(Vs),
    lists:nth(max(1, length(Sorted) * P div 100), Sorted).
