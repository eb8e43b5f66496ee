%% Servers that do a small amount of work for each element of many lists. Sick: each element has a process of its own, as
%% in a "parallel map". Healthy: the server iterates over the list itself.
-module(lab_spawn_storm).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Servers = lab:demand(Context, servers, 2, 4),
    Elements = lab:int(Context, elements, 60, 240),
    PerS = lab:demand(Context, elements_per_s, 45000, 70000),
    Units = lab:int(Context, units, 1, 3),
    Map = case lab:sick(Context) of true -> fun map_each/2; false -> fun lists:map/2 end,
    Mapped = lab:counter(),
    Started = [lab:server(Context, {server, N}, {?MODULE, {Map, Units, Mapped}}) || N <- lists:seq(1, Servers)],
    ListsPerS = max(1, PerS div Elements div Servers),
    [lab:start(fun() -> client(Pid, Elements, ListsPerS) end) || {_, Pid} <- Started],
    lab:wait_until(mapped, fun() -> lab:total(Mapped) > 2 * Servers end),
    #{
        sick => none,
        details => #{
            servers => {list, [Name || {Name, _} <- Started]}, elements => Elements,
            elements_per_s => ListsPerS * Elements * Servers, units => Units
        }
    }.

client(Server, Elements, ListsPerS) ->
    List = lists:seq(1, Elements),
    lab:at_rate(ListsPerS, fun(Due) -> [gen_server:call(Server, {map, List}, infinity) || _ <- lists:seq(1, Due)] end).

map_each(Fun, List) ->
    Self = self(),
    Started = [spawn_monitor(fun() -> Self ! {self(), Fun(Element)} end) || Element <- List],
    [
        receive
            {Pid, Result} ->
                erlang:demonitor(Monitor, [flush]),
                Result
        end
     || {Pid, Monitor} <- Started
    ].

init(State) -> {ok, State}.

handle_call({map, List}, _From, {Map, Units, Mapped} = State) ->
    Results = Map(fun(Element) -> lab:work(Units * 1000, 1) + Element end, List),
    lab:count(Mapped),
    {reply, length(Results), State}.

handle_cast(_, State) -> {noreply, State}.
