%% hash => photo; and what is known of each photo.
-module(photoid_index).
-behaviour(gen_server).
-export([start_link/0, lookup/1, insert/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
lookup(Id) ->
    case ets:lookup(?MODULE, Id rem 20000) of
        [{_, Hash}] -> {ok, Hash};
        [] -> not_found
    end.
insert(Id, Hash) -> gen_server:cast(?MODULE, {insert, Id rem 20000, Hash}).

init([]) ->
    ?MODULE = ets:new(?MODULE, [named_table, protected, {read_concurrency, true}]),
    [ets:insert(?MODULE, {I, erlang:phash2(I, 1 bsl 32)}) || I <- lists:seq(1, 20000)],
    erlang:send_after(1000, self(), tick),
    {ok, #{inserted => 0}}.
handle_call(stats, _From, S) -> {reply, S, S}.
handle_cast({insert, Id, Hash}, S = #{inserted := N}) ->
    ets:insert(?MODULE, {Id, Hash}),
    {noreply, S#{inserted := N + 1}}.
handle_info(tick, S) ->
    erlang:send_after(1000, self(), tick),
    {noreply, S}.
