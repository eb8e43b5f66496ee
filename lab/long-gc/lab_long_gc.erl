%% Servers that keep sessions and hibernate after each message, to save memory. One of them has millions of sessions on
%% its heap: each GC copies all of them, and callers wait. Healthy: its sessions are in an ETS table.
-module(lab_long_gc).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2]).

%% Minimum duration of a GC, and the factor by which a server's sessions may exceed the drawn number to reach it on a fast
%% host.
-define(MIN_GC_MS, 180).
-define(MAX_FACTOR, 2).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Thousands = lab:int(Context, thousand_sessions, 9000, 12000),
    EveryMs = lab:int(Context, every_ms, 900, 1400),
    Servers = [lab:server(Context, {server, N}, {?MODULE, #{}}) || N <- lists:seq(1, lab:int(Context, servers, 4, 7))],
    {Sick, Large} = lab:pick(Context, which, Servers),
    Where = case lab:sick(Context) of true -> heap; false -> table end,
    [filled = gen_server:call(Pid, {fill, heap, 100}, infinity) || {_, Pid} <- Servers, Pid =/= Large],
    filled = gen_server:call(Large, {fill, Where, Thousands * 1000}, infinity),
    Sessions =
        case Where of
            heap -> grown(Large, Thousands * 1000);
            table -> Thousands * 1000
        end,
    [asker(Pid, EveryMs) || {_, Pid} <- Servers],
    lab:pause(3 * EveryMs),
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => Large, servers => {list, [Name || {Name, _} <- Servers]}, sessions => Sessions,
            every_ms => EveryMs
        }
    }.

%% The duration of GCs, as the VM reports it. The first ones after the heap was filled take longer than all later ones.
grown(Large, Count) ->
    [here = gen_server:call(Large, ask, infinity) || _ <- lists:seq(1, 3)],
    erlang:system_monitor(self(), [{long_gc, 10}]),
    [here = gen_server:call(Large, ask, infinity) || _ <- lists:seq(1, 3)],
    erlang:system_monitor(undefined),
    More = round(Count * min(?MAX_FACTOR, max(1, ?MIN_GC_MS / max(1, longest(Large, 0))))),
    filled = gen_server:call(Large, {fill, heap, More}, infinity),
    More.

longest(Pid, Ms) ->
    receive
        {monitor, Pid, long_gc, Info} -> longest(Pid, max(Ms, proplists:get_value(timeout, Info)));
        {monitor, _, long_gc, _} -> longest(Pid, Ms)
    after 0 -> Ms
    end.

asker(To, EveryMs) ->
    lab:start(fun() ->
        lab:forever(fun() ->
            lab:pause(EveryMs),
            here = gen_server:call(To, ask, infinity)
        end)
    end).

init(_) -> {ok, []}.

handle_call({fill, heap, Count}, _From, _) -> {reply, filled, [{N, idle} || N <- lists:seq(1, Count)]};
handle_call({fill, table, Count}, _From, _) ->
    Table = ets:new(sessions, []),
    [ets:insert(Table, {N, idle}) || N <- lists:seq(1, min(Count, 100000))],
    {reply, filled, Table};
handle_call(ask, _From, Sessions) -> {reply, here, Sessions, hibernate}.

handle_cast(_, Sessions) -> {noreply, Sessions}.
