%% What was recorded, the last 5000.
-module(recorder_index).
-behaviour(gen_server).
-export([start_link/0, done/1, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
done(Call) -> gen_server:cast(?MODULE, {done, Call}).
init([]) -> {ok, {0, queue:new()}}.
handle_call(count, _, S = {N, _}) -> {reply, N, S}.
handle_cast({done, Call}, {N, Q}) ->
    Q1 = queue:in({Call, erlang:system_time(second)}, Q),
    {noreply, {N + 1, case queue:len(Q1) > 5000 of true -> queue:drop(Q1); false -> Q1 end}}.
