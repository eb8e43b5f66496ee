-module(profiles_store).
-behaviour(gen_server).
-export([start_link/0, read/1, write/2]).
-export([init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
read(Id) -> ets:lookup(?MODULE, Id).
write(Id, Profile) -> ets:insert(?MODULE, {Id, Profile}).

init([]) ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}, {write_concurrency, true}]),
    {ok, []}.
handle_call(size, _From, S) -> {reply, ets:info(?MODULE, size), S}.
handle_cast(_, S) -> {noreply, S}.
