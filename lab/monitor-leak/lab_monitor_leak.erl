%% Servers that lend something to their clients, and monitor each client meanwhile. One of them does not remove the
%% monitor when the client returns what it had, so it has one more after each request. Healthy: it does. Clients stay
%% alive, so no monitor is removed by an exit.
-module(lab_monitor_leak).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% At this number the clients stop: 140 bytes each, 280 MB.
-define(MAX_MONITORS, 2000000).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Count = lab:int(Context, servers, 3, 6),
    Clients = lab:int(Context, clients, 20, 60),
    PerS = lab:int(Context, requests_per_s, 1500, 3000),
    Each = lab:int(Context, past_requests, 60000, 80000),
    Past = Each * Count,
    Leaks = lab:shuffle(Context, which, [lab:sick(Context) | [false || _ <- lists:seq(2, Count)]]),
    Servers = [
        lab:server(Context, {server, N}, {?MODULE, IsLeaking})
     || {N, IsLeaking} <- lists:zip(lists:seq(1, Count), Leaks)
    ],
    Served = lab:counter(),
    Pids = list_to_tuple([Pid || {_, Pid} <- Servers]),
    %% Requests made before the measurement.
    [lab:start(fun() -> client(Pids, Past div Clients, PerS div Clients, Served) end) || _ <- lists:seq(1, Clients)],
    lab:wait_until(past, fun() -> lab:total(Served) >= Past - Past div 10 end),
    #{
        sick => case [Name || {{Name, _}, true} <- lists:zip(Servers, Leaks)] of [Leaking] -> Leaking; [] -> none end,
        details => #{
            servers => {list, [Name || {Name, _} <- Servers]}, clients => Clients, requests_per_s => PerS,
            past_requests => Each
        }
    }.

%% Random servers, so each gets about the same number.
client(Servers, Past, PerS, Served) ->
    request(Servers, Past, Served),
    lab:at_rate(PerS, fun(Due) ->
        case lab:total(Served) < ?MAX_MONITORS of
            true -> request(Servers, Due, Served);
            false -> ok
        end
    end).

request(_, 0, _) ->
    ok;
request(Servers, Left, Served) ->
    Server = element(rand:uniform(tuple_size(Servers)), Servers),
    lent = gen_server:call(Server, lend, infinity),
    returned = gen_server:call(Server, give_back, infinity),
    lab:count(Served),
    request(Servers, Left - 1, Served).

init(IsLeaking) -> {ok, {IsLeaking, #{}}}.

handle_call(lend, {Client, _}, {IsLeaking, Lent}) ->
    {reply, lent, {IsLeaking, Lent#{Client => monitor(process, Client)}}};
handle_call(give_back, {Client, _}, {IsLeaking, Lent}) ->
    {Monitor, Left} = maps:take(Client, Lent),
    IsLeaking orelse demonitor(Monitor, [flush]),
    {reply, returned, {IsLeaking, Left}}.

handle_cast(_, State) -> {noreply, State}.

handle_info({'DOWN', _, process, Client, _}, {IsLeaking, Lent}) ->
    {noreply, {IsLeaking, maps:remove(Client, Lent)}}.
