%% Raw events of the last hour: {Seq, Time, Customer, Kind, Amount}
-module(rollup_events).
-behaviour(gen_server).
-export([start_link/0, add/3, next/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(KEEP, 450000).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
add(Customer, Kind, Amount) -> gen_server:cast(?MODULE, {add, Customer, Kind, Amount}).
next(Seq) ->
    case ets:next(?MODULE, Seq) of
        '$end_of_table' -> done;
        Key -> hd(ets:lookup(?MODULE, Key))
    end.

init([]) ->
    ?MODULE = ets:new(?MODULE, [named_table, ordered_set, protected, {read_concurrency, true}]),
    Now = os:system_time(second),
    [ets:insert(?MODULE, event(I, Now - 3600 + I div 125, rand:uniform(60000), kind(), rand:uniform(100))) || I <- lists:seq(1, ?KEEP)],
    erlang:send_after(1000, self(), trim),
    {ok, ?KEEP + 1}.

handle_call(size, _From, N) -> {reply, ets:info(?MODULE, size), N}.
handle_cast({add, C, K, A}, N) ->
    ets:insert(?MODULE, event(N, os:system_time(second), C, K, A)),
    {noreply, N + 1}.
handle_info(trim, N) ->
    trim(ets:info(?MODULE, size) - ?KEEP),
    erlang:send_after(1000, self(), trim),
    {noreply, N}.

trim(N) when N =< 0 -> ok;
trim(N) -> ets:delete(?MODULE, ets:first(?MODULE)), trim(N - 1).

event(I, T, C, K, A) -> {I, T, C, K, A}.
kind() -> element(rand:uniform(4), {api_call, storage, traffic, login}).
