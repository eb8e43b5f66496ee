%% Thousands of short-lived sessions, each registered under a name while it lives. Sick: in `global`, where each name
%% takes a lock of the whole cluster, here of one node, and one OTP process does all of it. Healthy: in a table of the
%% application. There are more sessions than `global` can register; the excess is rejected.
-module(lab_global_names).

-export([start/1, establish/1]).

%% Registrations to measure the rate of `global` on this host.
-define(SAMPLES, 300).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    [Prefix, Table | Others] = lab:names(Context, names, lab:int(Context, processes, 5, 9)),
    DemandPct = lab:int(Context, demand_pct, 120, 160),
    Workers = lab:int(Context, workers, 6, 12),
    WorkUs = lab:int(Context, work_us, 5, 15),
    UnitsPerMs = lab:calibrate(),
    PerSecond = DemandPct * pace(Prefix) div 100,
    Table = ets:new(Table, [named_table, public, {write_concurrency, true}]),
    Names = {Prefix, Table, lab:sick(Context)},
    Done = lab:counter(),
    Steps = lab:counter(),
    [lab:start(fun() -> worker(Names, N, PerSecond div Workers + 1, {UnitsPerMs, WorkUs}, Done) end) || N <- lists:seq(1, Workers)],
    [lab:start(Other, fun() -> lab:load(UnitsPerMs, 2, 200, Steps) end) || Other <- Others],
    lab:wait_until(sessions, fun() -> lab:total(Done) > PerSecond div 2 end),
    #{
        sick => lab:culprit(Context, global_name_server),
        details => #{per_second => PerSecond, workers => Workers, demand_pct => DemandPct, others => {list, Others}}
    }.

%% Names that one process registers and unregisters per second.
pace(Prefix) ->
    {Microseconds, _} = timer:tc(fun() -> [session({Prefix, none, true}, {0, N}, fun() -> ok end) || N <- lists:seq(1, ?SAMPLES)] end),
    ?SAMPLES * 1000000 div max(1, Microseconds).

worker(Names, Worker, PerSecond, {UnitsPerMs, WorkUs}, Done) ->
    Work = fun() -> lab:work(UnitsPerMs, WorkUs) end,
    lab:at_rate(PerSecond, fun(Due) ->
        [begin session(Names, {Worker, N}, Work), lab:count(Done) end || N <- lists:seq(1, Due)]
    end).

session({Prefix, _, true}, Key, Work) ->
    Name = {Prefix, Key},
    yes = global:register_name(Name, self()),
    Work(),
    global:unregister_name(Name);
session({Prefix, Table, false}, Key, Work) ->
    Name = {Prefix, Key},
    true = ets:insert_new(Table, {Name, self()}),
    Work(),
    ets:delete(Table, Name).
