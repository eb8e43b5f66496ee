%% watches every user's process
-module(presence_watch).
-behaviour(gen_server).
-export([start_link/0, here/2, state/1, count/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
here(User, Pid) -> gen_server:cast(?MODULE, {here, User, Pid}).
state(User) -> ets:member(presence, User).
count() -> gen_server:call(?MODULE, count).
init([]) ->
    presence = ets:new(presence, [named_table, protected, {read_concurrency, true}]),
    {ok, #{}}.
handle_call(count, _, M) -> {reply, map_size(M), M}.
handle_cast({here, User, Pid}, M) ->
    Ref = erlang:monitor(process, Pid),
    ets:insert(presence, {User, Pid}),
    {noreply, M#{Ref => User}}.
handle_info({'DOWN', Ref, process, _, _}, M) ->
    {User, New} = maps:take(Ref, M),
    ets:delete(presence, User),
    {noreply, New}.
