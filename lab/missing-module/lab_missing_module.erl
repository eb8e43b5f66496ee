%% Each order of a shop calls a hook, in a module of a plug-in that is not installed. The caller gets an error and catches
%% it, and for each order the code server searches all directories of the code path for the module. Healthy: it is
%% searched once, and the result is kept.
-module(lab_missing_module).

-export([start/1, establish/1]).

%% Orders served before the lab is ready.
-define(WARMUP_ORDERS, 500).

%% Searches of which the fastest is the cost of one.
-define(SEARCHES, 20).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Clients = lab:int(Context, clients, 20, 40),
    WorkUs = lab:int(Context, work_us, 50, 150),
    %% In per cent of the searches that the code server can do.
    DemandPct = lab:int(Context, demand_pct, 90, 120),
    [Hook, Shop] = lab:names(Context, names, 2),
    Dependencies = lab:int(Context, dependencies, 60, 100),
    ok = code:add_pathsz([folder(Name) || Name <- lab:names(Context, dependencies, Dependencies)]),
    UnitsPerMs = lab:calibrate(),
    SearchUs = look_us(Hook),
    %% A client thinks, then orders: all together need DemandPct.
    ThinkUs = max(0, Clients * SearchUs * 100 div DemandPct - SearchUs - WorkUs),
    Before = before(lab:sick(Context), Hook),
    Served = lab:counter(),
    [
        lab:start(fun() ->
            lab:forever(fun() ->
                lab:pause(round(2 * ThinkUs / 1000 * rand:uniform())),
                _ = Before(#{shop => Shop, order => rand:uniform(1000000)}),
                lab:work(UnitsPerMs, WorkUs),
                lab:count(Served)
            end)
        end)
     || _ <- lists:seq(1, Clients)
    ],
    lab:wait_until(orders, fun() -> lab:total(Served) >= ?WARMUP_ORDERS end),
    #{
        sick => none,
        details => #{
            hook => Hook, shop => Shop, dependencies => Dependencies, clients => Clients, work_us => WorkUs, demand_pct => DemandPct,
            look_us => SearchUs, served_per_s => lab:per_second(Served, 2000)
        }
    }.

%% A dependency's directory, as a script adds it with -pa. Its content is not cached, also from OTP 26 on.
folder(Name) ->
    Folder = filename:join([filename:dirname(code:which(?MODULE)), Name, "ebin"]),
    ok = filelib:ensure_dir(filename:join(Folder, "any")),
    Folder.

before(true, Hook) ->
    fun(Order) ->
        try
            Hook:before_order(Order)
        catch
            error:undef -> Order
        end
    end;
before(false, Hook) ->
    case code:ensure_loaded(Hook) of
        {module, Hook} -> fun Hook:before_order/1;
        {error, _} -> fun(Order) -> Order end
    end.

look_us(Hook) ->
    Look = fun() -> code:ensure_loaded(Hook) end,
    lists:min([element(1, timer:tc(Look)) || _ <- lists:seq(1, ?SEARCHES)]).
