%% A server with a configuration, which notifies its subscribers of each change. Short-lived workers subscribe through a
%% helper. The server monitors the helper, which never exits, so it notifies more and more processes that no longer exist.
%% Healthy: a worker subscribes itself.
-module(lab_kept_subscriptions).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(KEYS, 20).
%% Workers per step that live and exit before the lab is ready, because the server has run for a long time.
-define(EARLIER_WORKERS, 20000).
%% Minimum and maximum number of their subscriptions.
-define(MIN_EARLIER_SUBSCRIPTIONS, 250000).
-define(MAX_EARLIER_SUBSCRIPTIONS, 600000).
%% At this number no more workers start.
-define(MAX_SUBSCRIPTIONS, 800000).

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
            case gen_server:call(Server, subscriptions, infinity) < ?MAX_SUBSCRIPTIONS of
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

%% Adds subscriptions until changes take more than the server's whole time; when healthy, one step, and none of them
%% stays.
earlier(Sick, Server, Worker, BetweenUs) ->
    Count = fun() -> gen_server:call(Server, subscriptions, infinity) end,
    Before = Count(),
    [Worker(0) || _ <- lists:seq(1, ?EARLIER_WORKERS)],
    Sick andalso lab:wait_until(subscribed, fun() -> Count() >= Before + ?EARLIER_WORKERS end),
    %% The fastest one, because other programs may use the CPU.
    Change = fun(_) -> element(1, timer:tc(fun() -> ok = gen_server:call(Server, {change, 1}, infinity) end)) end,
    Us = lists:min(lists:map(Change, lists:seq(1, 5))),
    Subscriptions = Count(),
    TooFew = Subscriptions < ?MIN_EARLIER_SUBSCRIPTIONS,
    TooFast = 2 * Us < 3 * BetweenUs andalso Subscriptions < ?MAX_EARLIER_SUBSCRIPTIONS,
    case Sick andalso (TooFew orelse TooFast) of
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

%% The server monitors the caller.
subscribe(Server, Worker, Keys) -> gen_server:cast(Server, {subscribe, self(), Worker, Keys}).

client(Server, Asked) ->
    lab:pause(rand:uniform(200)),
    0 = gen_server:call(Server, {get, rand:uniform(?KEYS)}, infinity),
    lab:count(Asked),
    client(Server, Asked).

%% Workers with their keys, by the monitor of the process that subscribed.
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
