%% Servers with sources that send only while a server has room. To find out, they read the server's memory size before
%% each message; for the answer the server counts all messages in its queue. Once one server had a long queue; since then
%% it counts all the time, and has no time left for the messages themselves. Healthy: servers and sources maintain a
%% count.
-module(lab_measured_backlog).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2]).

%% Limits of a server, in bytes and in messages.
-define(ROOM_BYTES, 700000000).
-define(ROOM_MESSAGES, 600000).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Sick = lab:sick(Context),
    Sources = lab:int(Context, sources, 30, 45),
    PerS = lab:int(Context, messages_per_s, 2600, 3600),
    WorkUs = lab:int(Context, work_us, 10, 14),
    Peak = 1000 * lab:int(Context, peak_thousand_messages, 280, 340),
    UnitsPerMs = lab:calibrate(),
    Servers = [
        begin
            Waiting = counters:new(1, []),
            Done = lab:counter(),
            {Name, Pid} = lab:server(Context, {server, N}, {?MODULE, {UnitsPerMs, WorkUs, Waiting, Done}}),
            {Name, Pid, Waiting, Done}
        end
     || N <- lists:seq(1, lab:int(Context, servers, 3, 5))
    ],
    {Culprit, Blocked, Waiting, Done} = Large = lab:pick(Context, which, Servers),
    %% The journal was blocked for a moment, and these arrived meanwhile.
    Resumed = counters:new(1, []),
    gen_server:cast(Blocked, {block, Resumed}),
    [send(N, Large) || N <- lists:seq(1, Peak)],
    counters:add(Resumed, 1, 1),
    await_progress(Done),
    [source(Sick, Large, max(1, PerS div Sources)) || _ <- lists:seq(1, Sources)],
    [source(Sick, Other, 5) || {_, Pid, _, _} = Other <- Servers, Pid =/= Blocked, _ <- lists:seq(1, 3)],
    case Sick of
        true ->
            await_backlog(Done, Waiting, PerS, Peak div 2);
        false ->
            lab:wait_until(worked_off, fun() -> counters:get(Waiting, 1) < PerS end)
    end,
    #{
        sick => lab:culprit(Context, Culprit),
        details => #{
            pid => Blocked, servers => {list, [Name || {Name, _, _, _} <- Servers]}, sources => Sources,
            messages_per_s => PerS, work_us => WorkUs, peak_messages => Peak, waiting => counters:get(Waiting, 1)
        }
    }.

await_progress(Done) ->
    erlang:yield(),
    lab:total(Done) > 0 orelse await_progress(Done).

%% The server handles no more messages than arrive. Timers fire late on the scheduler that the journal occupies, so this
%% does not wait for one.
await_backlog(Done, Waiting, PerS, MinWaiting) ->
    Before = lab:total(Done),
    spin(erlang:monotonic_time(millisecond) + 1000),
    case lab:total(Done) - Before < PerS andalso counters:get(Waiting, 1) > MinWaiting of
        true -> ok;
        false -> await_backlog(Done, Waiting, PerS, MinWaiting)
    end.

spin(UntilMs) ->
    erlang:yield(),
    erlang:monotonic_time(millisecond) < UntilMs andalso spin(UntilMs).

source(Sick, Server, PerS) ->
    lab:start(fun() ->
        lab:pause(rand:uniform(1000 div PerS)),
        lab:at_rate(PerS, fun(Due) ->
            [has_room(Sick, Server) andalso send(N, Server) || N <- lists:seq(1, Due)]
        end)
    end).

has_room(true, {_, Pid, _, _} = Server) ->
    {memory, Bytes} = erlang:process_info(Pid, memory),
    Bytes < ?ROOM_BYTES andalso has_room(false, Server);
has_room(false, {_, _, Waiting, _}) ->
    counters:get(Waiting, 1) < ?ROOM_MESSAGES.

%% An entry has a few fields, like those of a journal.
send(N, {_, Pid, Waiting, _}) ->
    counters:add(Waiting, 1, 1),
    gen_server:cast(Pid, {enter, N, {N rem 1000, self(), pending}, [N, N + 1]}).

init(State) -> {ok, State}.

handle_cast({enter, _, {_, _, pending}, [_, _]}, {UnitsPerMs, WorkUs, Waiting, Done} = State) ->
    lab:work(UnitsPerMs, WorkUs),
    counters:sub(Waiting, 1, 1),
    lab:count(Done),
    {noreply, State};
handle_cast({block, Resumed}, State) ->
    lab:wait_until(resumed, fun() -> counters:get(Resumed, 1) > 0 end),
    {noreply, State}.

handle_call(_, _From, State) -> {reply, ok, State}.
