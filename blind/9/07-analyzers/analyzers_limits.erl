%% Normal ranges of the tests.
-module(analyzers_limits).
-behaviour(gen_server).
-export([start_link/0, judge/2, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
judge(Test, V) ->
    case ets:lookup(analyzers_limits, Test) of
        [{_, Lo, Hi}] when V >= Lo, V =< Hi -> normal;
        [_] -> abnormal;
        [] -> unknown
    end.
init([]) ->
    ets:new(analyzers_limits, [named_table, protected, {read_concurrency, true}]),
    [ets:insert(analyzers_limits, {<<"T", (integer_to_binary(I))/binary>>, I, I + 80}) || I <- lists:seq(1, 60)],
    {ok, []}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
