%% Thousands of sessions with a small state and little to do, and a job that garbage-collects all processes every few
%% seconds, in the belief that memory would grow otherwise. Healthy: there is no job.
-module(lab_forced_collections).

-export([start/1, establish/1]).

%% Rounds of the job before the lab is ready.
-define(WARMUP_ROUNDS, 2).
%% Requests to each session before that.
-define(WARMUP_REQUESTS, 200).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Sessions = lab:int(Context, sessions, 2500, 4000),
    Fields = lab:int(Context, fields, 20, 60),
    PerS = lab:int(Context, per_s, 200, 600),
    EveryMs = lab:int(Context, every_ms, 2000, 2800),
    [Job | Sources] = Names = lab:names(Context, processes, lab:int(Context, processes, 3, 5)),
    Begun = lab:counter(),
    Pids = list_to_tuple([lab:start(fun() -> session(Fields, Begun) end) || _ <- lists:seq(1, Sessions)]),
    lab:wait_until(sessions, fun() -> lab:total(Begun) =:= Sessions end),
    %% Heaps have reached their final size before the measurement: when healthy, no GC runs for hours.
    Warm = lab:counter(),
    [[Pid ! {request, Warm} || Pid <- tuple_to_list(Pids)] || _ <- lists:seq(1, ?WARMUP_REQUESTS)],
    lab:wait_until(warm, fun() -> lab:total(Warm) =:= ?WARMUP_REQUESTS * Sessions end),
    Answered = lab:counter(),
    [
        lab:start(Source, fun() ->
            lab:at_rate(PerS, fun(Due) ->
                [element(rand:uniform(Sessions), Pids) ! {request, Answered} || _ <- lists:seq(1, Due)]
            end)
        end)
     || Source <- Sources
    ],
    Rounds = lab:counter(),
    [lab:start(Job, fun() -> collect(EveryMs, Rounds) end) || lab:sick(Context)],
    lab:wait_until(requests, fun() -> lab:total(Answered) > PerS end),
    lab:wait_until(rounds, fun() -> not lab:sick(Context) orelse lab:total(Rounds) >= ?WARMUP_ROUNDS end),
    #{
        sick => none,
        details => #{
            job => Job, sources => {list, Sources}, processes => {list, lab:shuffle(Context, order, Names)},
            sessions => Sessions, fields => Fields, per_s => PerS, every_ms => EveryMs
        }
    }.

collect(EveryMs, Rounds) ->
    lab:forever(fun() ->
        [erlang:garbage_collect(Pid) || Pid <- processes()],
        lab:count(Rounds),
        lab:pause(EveryMs)
    end).

session(Fields, Begun) ->
    State = maps:from_list([{Field, {Field, erlang:monotonic_time()}} || Field <- lists:seq(1, Fields)]),
    lab:count(Begun),
    session(State).

%% A request changes one field of the state.
session(State) ->
    receive
        {request, Answered} ->
            Field = rand:uniform(map_size(State)),
            Changed = State#{Field := {Field, erlang:monotonic_time()}},
            lab:count(Answered),
            session(Changed)
    end.
