%% Servers with clients that wait for an answer before they ask again; one has thousands of them. After each step of a job
%% it checks for a stop message, by a selective receive that scans the whole queue. After a burst it is too slow to
%% shorten its queue, because the queue is long. Healthy: the request to stop is a flag.
-module(lab_selective_receive).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Names = lab:names(Context, servers, lab:int(Context, servers, 2, 4)),
    Sick = lab:pick(Context, which, Names),
    Clients = lab:int(Context, clients, 6000, 9000),
    Steps = lab:int(Context, steps, 40, 60),
    ThinkMs = lab:int(Context, think_ms, 800, 1200),
    Served = lab:counter(),
    [server(Context, Name, Name =:= Sick, Steps) || Name <- Names],
    Few = Clients div 20,
    [
        lab:start(fun() -> client(Name, ThinkMs, Served) end)
     || Name <- Names, _ <- lists:seq(1, case Name of Sick -> Clients; _ -> Few end)
    ],
    case lab:sick(Context) of
        true ->
            %% All clients start with a burst; most of it is left after a while.
            lab:pause(4 * ThinkMs),
            lab:wait_until(burst_stays, fun() -> 2 * queue_len(Sick) > Clients end);
        false ->
            lab:wait_until(burst_is_over, fun() -> 20 * queue_len(Sick) < Clients end)
    end,
    #{
        sick => lab:culprit(Context, Sick),
        details => #{servers => {list, Names}, clients => Clients, steps => Steps, think_ms => ThinkMs}
    }.

server(Context, Name, MaybeSick, Steps) ->
    Flag = atomics:new(1, []),
    Stop =
        case MaybeSick andalso lab:sick(Context) of
            true -> fun is_told_to_stop/0;
            false -> fun() -> atomics:get(Flag, 1) =:= 1 end
        end,
    lab:start(Name, fun() -> serve(Stop, Steps) end).

serve(Stop, Steps) ->
    receive
        {job, From} ->
            step(Stop, Steps),
            From ! done,
            serve(Stop, Steps)
    end.

step(_, 0) -> ok;
step(Stop, Left) ->
    false = Stop(),
    step(Stop, Left - 1).

is_told_to_stop() ->
    receive stop -> true
    after 0 -> false
    end.

client(Server, ThinkMs, Served) ->
    Server ! {job, self()},
    receive done -> ok end,
    lab:count(Served),
    %% The first use of a random number generator would enlarge each of thousands of heaps.
    lab:pause(ThinkMs div 2 + erlang:phash2({self(), erlang:monotonic_time()}, ThinkMs)),
    client(Server, ThinkMs, Served).

queue_len(Name) ->
    {message_queue_len, Length} = erlang:process_info(whereis(Name), message_queue_len),
    Length.
