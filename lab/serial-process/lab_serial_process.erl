%% A feeder with more jobs than one worker can do, and one worker: one scheduler is saturated, the others sleep. The jobs
%% wait in the feeder's own data, so no message queue shows them. Healthy: one worker per scheduler.
-module(lab_serial_process).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Above this number jobs are rejected.
-define(MAX_WAITING, 100).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    JobMs = lab:int(Context, job_ms, 15, 60),
    DemandPct = lab:int(Context, demand_pct, 110, 125),
    [Feeder, Sick | Others] = lab:names(Context, processes, lab:int(Context, processes, 5, 9)),
    UnitsPerMs = lab:calibrate(),
    Done = lab:counter(),
    Steps = lab:counter(),
    {ok, FeederPid} = gen_server:start_link({local, Feeder}, ?MODULE, [], []),
    lab:start(fun() -> lab:at_rate(1000 * DemandPct div 100 div JobMs + 1, fun(Due) -> add(FeederPid, Due) end) end),
    Worker = lab:start(Sick, fun() -> worker(FeederPid, UnitsPerMs, JobMs, Done) end),
    case lab:sick(Context) of
        true -> ok;
        false -> [lab:start(fun() -> worker(FeederPid, UnitsPerMs, JobMs, Done) end) || _ <- lists:seq(2, 2 * lab:cores(Context))]
    end,
    [lab:start(Other, fun() -> lab:load(UnitsPerMs, 2, 200, Steps) end) || Other <- Others],
    lab:wait_until(jobs_done, fun() -> lab:total(Done) * JobMs > 1000 end),
    #{
        sick => lab:culprit(Context, Sick),
        details => #{pid => Worker, feeder => Feeder, others => {list, Others}, job_ms => JobMs, demand_pct => DemandPct}
    }.

worker(Feeder, UnitsPerMs, JobMs, Done) ->
    job = gen_server:call(Feeder, next, infinity),
    lab:work(UnitsPerMs, JobMs * 1000),
    lab:count(Done),
    worker(Feeder, UnitsPerMs, JobMs, Done).

add(Feeder, Count) -> gen_server:cast(Feeder, {add, Count}).

%% The feeder: number of waiting jobs, and idle workers.
init([]) -> {ok, {0, []}}.

handle_cast({add, Count}, {Waiting, Idle}) -> {noreply, hand_out({min(?MAX_WAITING, Waiting + Count), Idle})}.

handle_call(next, From, {Waiting, Idle}) -> {noreply, hand_out({Waiting, Idle ++ [From]})}.

handle_info(_, State) -> {noreply, State}.

hand_out({Waiting, [From | Idle]}) when Waiting > 0 ->
    gen_server:reply(From, job),
    hand_out({Waiting - 1, Idle});
hand_out(State) ->
    State.
