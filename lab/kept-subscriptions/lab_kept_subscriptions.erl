%% A server with a configuration, whose subscribers are told of each change. Workers come and go, and
%% subscribe through a helper; it is the helper that the server monitors, and that never ends, and so the
%% server tells more and more processes that are gone. Cured, a worker subscribes itself.
-module(lab_kept_subscriptions).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(KEYS, 20).
%% Workers that come and go at a time before the lab is ready, since the server has run for long.
-define(EARLIER, 20000).
%% So many subscriptions of them there are at least, and at most.
-define(FEWEST, 250000).
-define(MANY, 600000).
%% With so many no more workers come.
-define(MOST, 800000).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Sick = lab:sick(Context),
    Changes = lab:int(Context, changes_per_s, 30, 50),
    WorkersPerS = lab:int(Context, workers_per_s, 30, 60),
    LifeMs = lab:int(Context, life_ms, 1000, 2000),
    Clients = lab:int(Context, clients, 20, 40),
    {Name, Server} = lab:server(Context, configuration, {?MODULE, #{}}),
    Helper = lab:start(lab:name(Context, helper), fun() -> help(Server) end),
    Worker = fun(Ms) -> lab:start(fun() -> worker(Sick, Server, Helper, Ms) end) end,
    earlier(Sick, Server, Worker, 1000000 div Changes),
    lab:start(fun() ->
        lab:at_rate(WorkersPerS, fun(Due) ->
            case gen_server:call(Server, subscriptions, infinity) < ?MOST of
                true -> [Worker(LifeMs div 2 + rand:uniform(LifeMs)) || _ <- lists:seq(1, Due)];
                false -> ok
            end
        end)
    end),
    lab:start(fun() ->
        lab:at_rate(Changes, fun(Due) ->
            [ok = gen_server:call(Server, {change, rand:uniform(?KEYS)}, infinity) || _ <- lists:seq(1, Due)]
        end)
    end),
    Asked = lab:counter(),
    [lab:start(fun() -> client(Server, Asked) end) || _ <- lists:seq(1, Clients)],
    lab:wait_until(asked, fun() -> lab:total(Asked) > 3 * Clients end),
    #{
        sick => lab:culprit(Context, Name),
        details => #{
            pid => Server, helper => Helper, changes_per_s => Changes, workers_per_s => WorkersPerS, life_ms => LifeMs,
            clients => Clients, subscriptions => gen_server:call(Server, subscriptions, infinity)
        }
    }.

%% Until changes take the server's whole time, and more; cured, once, and none of them stays.
earlier(Sick, Server, Worker, BetweenUs) ->
    Count = fun() -> gen_server:call(Server, subscriptions, infinity) end,
    Before = Count(),
    [Worker(0) || _ <- lists:seq(1, ?EARLIER)],
    Sick andalso lab:wait_until(subscribed, fun() -> Count() >= Before + ?EARLIER end),
    %% The fastest one: others may have the CPU.
    Change = fun(_) -> element(1, timer:tc(fun() -> ok = gen_server:call(Server, {change, 1}, infinity) end)) end,
    Us = lists:min(lists:map(Change, lists:seq(1, 5))),
    Subscriptions = Count(),
    case Sick andalso (Subscriptions < ?FEWEST orelse (2 * Us < 3 * BetweenUs andalso Subscriptions < ?MANY)) of
        true -> earlier(Sick, Server, Worker, BetweenUs);
        false -> ok
    end.

help(Server) ->
    receive
        {subscribe, Worker, Keys} ->
            subscribe(Server, Worker, Keys),
            help(Server)
    end.

worker(Sick, Server, Helper, LifeMs) ->
    Keys = [rand:uniform(?KEYS) || _ <- lists:seq(1, 4)],
    case Sick of
        true -> Helper ! {subscribe, self(), Keys};
        false -> subscribe(Server, self(), Keys)
    end,
    lab:pause(LifeMs).

%% Whoever calls this is monitored.
subscribe(Server, Worker, Keys) -> gen_server:cast(Server, {subscribe, self(), Worker, Keys}).

client(Server, Asked) ->
    lab:pause(rand:uniform(200)),
    0 = gen_server:call(Server, {get, rand:uniform(?KEYS)}, infinity),
    lab:count(Asked),
    client(Server, Asked).

%% Who is told of which keys, by the monitor of whoever subscribed.
init(Subscriptions) -> {ok, Subscriptions}.

handle_call({get, _}, _From, Subscriptions) ->
    {reply, 0, Subscriptions};
handle_call({change, Key}, _From, Subscriptions) ->
    maps:fold(
        fun(_, {Worker, Keys}, ok) ->
            lists:member(Key, Keys) andalso (Worker ! {changed, Key, 0}),
            ok
        end,
        ok,
        Subscriptions
    ),
    {reply, ok, Subscriptions};
handle_call(subscriptions, _From, Subscriptions) ->
    {reply, map_size(Subscriptions), Subscriptions}.

handle_cast({subscribe, Owner, Worker, Keys}, Subscriptions) ->
    {noreply, Subscriptions#{erlang:monitor(process, Owner) => {Worker, Keys}}}.

handle_info({'DOWN', Monitor, process, _, _}, Subscriptions) -> {noreply, maps:remove(Monitor, Subscriptions)}.
