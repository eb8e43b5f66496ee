%% Workers that call a backend and wait for its answer with a time-out. The sick worker's loop has no clause for answers
%% that come later, so they stay in the queue forever, and every receive skips them. Healthy: the loop receives late
%% answers and drops them.
-module(lab_unread_messages).

-export([start/1, establish/1]).

%% One in this number of the sick worker's jobs times out.
-define(ONE_LATE_OF, 20).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Count = lab:int(Context, workers, 3, 6),
    Late = lab:int(Context, late_answers, 2500, 9000),
    JobsPerS = lab:int(Context, jobs_per_s, 60, 150),
    Backend = lab:start(fun() -> backend() end),
    Workers = [worker(Context, N, Backend) || N <- lists:seq(1, Count)],
    {Sick, Pid} = lab:pick(Context, which, Workers),
    %% The backend was slow for a moment: these jobs timed out, and all answers came later.
    Done = lab:counter(),
    Client = lab:start(fun() -> clients(Done) end),
    [Pid ! {job, Client, 0} || _ <- lists:seq(1, Late)],
    lab:wait_until(given_up, fun() -> lab:total(Done) =:= Late end),
    case lab:sick(Context) of
        true -> lab:wait_until(late_answers, fun() -> 10 * queue_len(Pid) > 8 * Late end);
        false -> lab:wait_until(all_taken, fun() -> queue_len(Pid) < 100 end)
    end,
    [lab:start(fun() -> client(Worker, JobsPerS, Worker =:= Pid) end) || {_, Worker} <- Workers],
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => Pid, workers => {list, [Name || {Name, _} <- Workers]},
            late_answers => Late, jobs_per_s => JobsPerS
        }
    }.

%% One in four has no registered name, as in real systems.
worker(Context, N, Backend) ->
    Cured = not lab:sick(Context),
    Worker = fun() -> worker(Backend, Cured) end,
    case lab:int(Context, {anonymous, N}, 1, 4) of
        1 ->
            Pid = lab:start(Worker),
            {Pid, Pid};
        _ ->
            Name = lab:name(Context, {worker, N}),
            {Name, lab:start(Name, Worker)}
    end.

worker(Backend, Cured) ->
    receive
        {job, From, LimitMs} ->
            Ref = make_ref(),
            Backend ! {ask, self(), Ref},
            receive {answer, Ref} -> ok
            after LimitMs -> given_up
            end,
            From ! done,
            worker(Backend, Cured);
        {answer, _} when Cured ->
            worker(Backend, Cured)
    end.

backend() ->
    receive
        {ask, From, Ref} ->
            From ! {answer, Ref},
            backend()
    end.

clients(Done) ->
    receive
        done ->
            lab:count(Done),
            clients(Done)
    end.

client(Worker, JobsPerS, MaybeLate) ->
    lab:at_rate(JobsPerS, fun(Due) ->
        lists:foreach(
            fun(_) ->
                Worker ! {job, self(), limit(MaybeLate)},
                receive done -> ok end
            end,
            lists:seq(1, Due)
        )
    end).

limit(MaybeLate) ->
    case MaybeLate andalso rand:uniform(?ONE_LATE_OF) of
        1 -> 0;
        _ -> 5000
    end.

queue_len(Pid) ->
    {message_queue_len, Length} = erlang:process_info(Pid, message_queue_len),
    Length.
