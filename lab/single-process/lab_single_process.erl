%% Several servers, and one of them does nearly all the work of every request: it saturates a scheduler, the others have
%% little to do. Its queue varies with the load but never grows without bound, because each client waits for its answer.
%% Healthy: the same work is distributed over shards.
-module(lab_single_process).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2]).

-define(SHARDS, 8).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Clients = lab:int(Context, clients, 30, 50),
    ServiceUs = lab:int(Context, service_us, 300, 700),
    %% In per cent of what one process can do; it varies by a fifth.
    DemandPct = lab:int(Context, demand_pct, 130, 145),
    SwingMs = lab:int(Context, swing_ms, 3000, 7000),
    UnitsPerMs = lab:calibrate(),
    Served = lab:counter(),
    State = #{units_per_ms => UnitsPerMs, served => Served},
    Servers = [lab:server(Context, {server, N}, {?MODULE, State}) || N <- lists:seq(1, 5)],
    {Sick, Busy} = lab:pick(Context, which, Servers),
    Others = [Pid || {_, Pid} <- Servers, Pid =/= Busy],
    Workers =
        case lab:sick(Context) of
            true ->
                [Busy];
            false ->
                [begin {ok, Pid} = gen_server:start_link(?MODULE, State, []), Pid end || _ <- lists:seq(1, ?SHARDS)]
        end,
    %% A client's cycle: this much thinking, then the call; all clients together need DemandPct.
    CycleUs = Clients * ServiceUs * 100 div DemandPct,
    [
        lab:start(fun() -> client(list_to_tuple(Workers), list_to_tuple(Others), ServiceUs, CycleUs, SwingMs) end)
     || _ <- lists:seq(1, Clients)
    ],
    lab:wait_until(served, fun() -> lab:total(Served) > 1000 end),
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => Busy, servers => {list, [Name || {Name, _} <- Servers]}, clients => Clients,
            service_us => ServiceUs, demand_pct => DemandPct, swing_ms => SwingMs
        }
    }.

client(Workers, Others, ServiceUs, CycleUs, SwingMs) ->
    Angle = 2 * math:pi() * (erlang:monotonic_time(millisecond) rem SwingMs) / SwingMs,
    MeanMs = (CycleUs - ServiceUs) * (1.0 - 0.2 * math:sin(Angle)) / 1000,
    lab:pause(round(2 * MeanMs * rand:uniform())),
    done = gen_server:call(one_of(Workers), {request, ServiceUs}, infinity),
    case rand:uniform(20) of
        1 -> done = gen_server:call(one_of(Others), {request, ServiceUs div 4}, infinity);
        _ -> ok
    end,
    client(Workers, Others, ServiceUs, CycleUs, SwingMs).

one_of(Pids) -> element(rand:uniform(tuple_size(Pids)), Pids).

init(State) -> {ok, State}.

handle_call({request, Microseconds}, _From, #{units_per_ms := UnitsPerMs, served := Served} = State) ->
    lab:work(UnitsPerMs, Microseconds),
    lab:count(Served),
    {reply, done, State}.

handle_cast(_, State) -> {noreply, State}.
