-module(tiles_areas).
-behaviour(gen_server).
-export([start_link/0, watch/1, count/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
watch(Area) -> gen_server:call(?MODULE, {watch, Area}).
count(Area) -> gen_server:call(?MODULE, {count, Area}).

init([]) -> {ok, {#{}, #{}}}.

handle_call({watch, Area}, _, {Refs, Counts}) ->
    {ok, Pid} = supervisor:start_child(tiles_watch_sup, [Area]),
    {reply, ok, {Refs#{monitor(process, Pid) => Area}, maps:update_with(Area, fun(K) -> K + 1 end, 1, Counts)}};
handle_call({count, Area}, _, {_, Counts} = S) -> {reply, maps:get(Area, Counts, 0), S}.

handle_cast(_, S) -> {noreply, S}.
handle_info({'DOWN', R, _, _, _}, {Refs, Counts}) ->
    {Area, Refs1} = maps:take(R, Refs),
    {noreply, {Refs1, maps:update_with(Area, fun(K) -> K - 1 end, Counts)}}.
