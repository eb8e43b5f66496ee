%% Topics house/N/kind; a subscriber gives a prefix. Publishing sends to all whose prefix fits, from the publisher's process.
-module(greenhouse_bus).
-behaviour(gen_server).
-export([start_link/0, subscribe/1, publish/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
subscribe(Prefix) -> gen_server:call(?MODULE, {subscribe, Prefix, self()}).
publish([House, _Kind] = Topic, Value) ->
    [Pid ! {value, Topic, Value} || {_, Pid} <- ets:lookup(?MODULE, House)],
    [Pid ! {value, Topic, Value} || {_, Pid} <- ets:lookup(?MODULE, all)],
    ok.
init([]) -> ets:new(?MODULE, [named_table, bag, {read_concurrency, true}]), {ok, #{}}.
handle_call({subscribe, Prefix, Pid}, _, S) ->
    ets:insert(?MODULE, {Prefix, Pid}),
    {reply, ok, S#{erlang:monitor(process, Pid) => {Prefix, Pid}}}.
handle_cast(_, S) -> {noreply, S}.
handle_info({'DOWN', Ref, _, _, _}, S) ->
    {Row, S1} = maps:take(Ref, S),
    ets:delete_object(?MODULE, Row),
    {noreply, S1}.
