%% Workers that do their work while they hold one lock, which a process grants to one after the other. One worker runs at
%% a time, each of them is nearly idle, and so is the process that grants the lock: no process is busy, and yet a second
%% scheduler has no work. Healthy: one lock per key.
-module(lab_serial_section).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-define(KEYS, 16).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 28, 40),
    HeldUs = lab:int(Context, held_us, 800, 2500),
    DemandPct = lab:int(Context, demand_pct, 135, 150),
    %% At least eight of them wait at a time: Workers * (1 - 100 / DemandPct).
    [Sick | Names] = lab:names(Context, processes, 1 + Workers),
    UnitsPerMs = lab:calibrate(),
    Held = lab:counter(),
    {ok, Lock} = gen_server:start_link({local, Sick}, ?MODULE, [], []),
    Locks =
        case lab:sick(Context) of
            true -> [Lock];
            false -> [begin {ok, Pid} = gen_server:start_link(?MODULE, [], []), Pid end || _ <- lists:seq(1, ?KEYS)]
        end,
    CycleUs = Workers * HeldUs * 100 div DemandPct,
    [
        lab:start(Name, fun() -> worker(list_to_tuple(Locks), UnitsPerMs, HeldUs, (CycleUs - HeldUs) div 1000, Held) end)
     || Name <- Names
    ],
    lab:wait_until(locks_held, fun() -> lab:total(Held) > 500 end),
    #{
        sick => lab:culprit(Context, Sick),
        details => #{pid => Lock, workers => {list, Names}, held_us => HeldUs, demand_pct => DemandPct}
    }.

worker(Locks, UnitsPerMs, HeldUs, ThinkMs, Held) ->
    lab:pause(rand:uniform(2 * ThinkMs)),
    Lock = element(rand:uniform(tuple_size(Locks)), Locks),
    granted = gen_server:call(Lock, acquire, infinity),
    lab:work(UnitsPerMs, HeldUs),
    lab:count(Held),
    ok = gen_server:cast(Lock, release),
    worker(Locks, UnitsPerMs, HeldUs, ThinkMs, Held).

%% The lock: a FIFO of callers; its head holds the lock.
init([]) -> {ok, queue:new()}.

handle_call(acquire, From, Waiting) ->
    queue:is_empty(Waiting) andalso gen_server:reply(From, granted),
    {noreply, queue:in(From, Waiting)}.

handle_cast(release, Waiting) ->
    Rest = queue:drop(Waiting),
    queue:is_empty(Rest) orelse gen_server:reply(queue:head(Rest), granted),
    {noreply, Rest}.
