%% A connection pool whose members are started by one supervisor, and which stops members itself. A member logs in to the
%% database before its start returns, so the supervisor waits, and the pool for the supervisor. Since the database was
%% restarted the pool gives connections to requests that have timed out, stops these connections because of it, and starts
%% others. Healthy: a member is started first, and logs in then.
-module(lab_serial_starts).
-behaviour(gen_server).

-export([start/1, establish/1, drive/1, drive/2]).
-export([start_member/4]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, handle_continue/2]).

%% A member is replaced after this number of queries, as in real pools.
-define(QUERIES, 200).
-define(THINK_MS, 250).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    Sick = lab:sick(Context),
    Members = lab:int(Context, members, 8, 11),
    LoginMs = lab:int(Context, login_ms, 260, 350),
    AnswerMs = lab:int(Context, answer_ms, 18, 26),
    PatienceMs = lab:int(Context, patience_ms, 700, 900),
    Users = Members * lab:int(Context, users_per_member, 9, 12),
    Control = lab:await_driver(),
    lab:send(Control, #{answer_ms => AnswerMs}),
    #{port := Port} = lab:recv(Control),
    [Supervisor, OtherSupervisor] = lab:names(Context, supervisors, 2),
    {Name, Pool} = pool(Context, pool, Supervisor, Members, Port, LoginMs, Sick),
    %% Logins of this pool take only a millisecond.
    {OtherName, Other} = pool(Context, other_pool, OtherSupervisor, 4, Port, 1, Sick),
    Served = lab:counter(),
    TimedOut = lab:counter(),
    [lab:wait_until(members, fun() -> gen_server:call(Which, free) =:= All end) || {Which, All} <- [{Pool, Members}, {Other, 4}]],
    [lab:start(fun() -> user(Pool, PatienceMs, Served, TimedOut) end) || _ <- lists:seq(1, Users)],
    [lab:start(fun() -> user(Other, PatienceMs, lab:counter(), lab:counter()) end) || _ <- lists:seq(1, 20)],
    lab:wait_until(served, fun() -> lab:total(Served) > Users end),
    lab:send(Control, restart),
    case Sick of
        true ->
            lab:wait_until(timed_out, fun() -> lab:total(TimedOut) > 2 * Users end),
            lab:wait_until(mostly, fun() -> 2 * lab:per_second(Served, 1000) < lab:per_second(TimedOut, 1000) end);
        false ->
            lab:wait_until(again, fun() -> 2 * lab:per_second(Served, 1000) > Users andalso lab:per_second(TimedOut, 1000) =:= 0 end)
    end,
    #{
        sick => lab:culprit(Context, Supervisor),
        details => #{
            supervisor => Supervisor, pool => Name, pid => Pool, other_supervisor => OtherSupervisor, other_pool => OtherName,
            members => Members, login_ms => LoginMs, answer_ms => AnswerMs, patience_ms => PatienceMs, users => Users,
            database => "127.0.0.1:" ++ integer_to_list(Port)
        },
        driver => Control
    }.

pool(Context, Key, Supervisor, Members, Port, LoginMs, Sick) ->
    Child = {?MODULE, start_member, [Port, LoginMs, Sick]},
    {ok, _} = supervisor:start_link({local, Supervisor}, ?MODULE, {supervisor, Child}),
    lab:server(Context, Key, {?MODULE, {pool, Supervisor, Members}}).

%% One page after the other; each is a request, that is, a process.
user(Pool, PatienceMs, Served, TimedOut) ->
    lab:pause(?THINK_MS + rand:uniform(2 * ?THINK_MS)),
    {Request, Monitor} = spawn_monitor(fun() -> request(Pool, PatienceMs, Served, TimedOut) end),
    receive
        {'DOWN', Monitor, process, Request, _} -> user(Pool, PatienceMs, Served, TimedOut)
    end.

request(Pool, PatienceMs, Served, TimedOut) ->
    try gen_server:call(Pool, take, PatienceMs) of
        Member ->
            case gen_server:call(Member, query, infinity) of
                {answer, Left} when Left > 0 ->
                    lab:count(Served),
                    gen_server:cast(Pool, {return, Member});
                {answer, 0} ->
                    lab:count(Served),
                    gen_server:cast(Pool, {replace, Member});
                broken ->
                    gen_server:cast(Pool, {replace, Member})
            end
    catch
        exit:{timeout, _} -> lab:count(TimedOut)
    end.

init({supervisor, Child}) ->
    Spec = #{id => member, start => Child, restart => temporary, shutdown => brutal_kill},
    {ok, {#{strategy => simple_one_for_one}, [Spec]}};
init({pool, Supervisor, Members}) ->
    [start_another(Supervisor) || _ <- lists:seq(1, Members)],
    %% Members by the monitors of their users, and waiting requests by their monitors, the latter also in FIFO order.
    {ok, #{supervisor => Supervisor, free => [], taken => #{}, waiting => #{}, order => queue:new()}};
init({member, Port, LoginMs, true, Pool}) ->
    Socket = log_in(Port, LoginMs),
    gen_server:cast(Pool, {ready, self()}),
    {ok, {Socket, ?QUERIES}};
init({member, _, _, false, _} = Member) ->
    {ok, Member, {continue, log_in}}.

handle_continue(log_in, {member, Port, LoginMs, false, Pool}) ->
    Socket = log_in(Port, LoginMs),
    gen_server:cast(Pool, {ready, self()}),
    {noreply, {Socket, ?QUERIES}}.

%%% The pool

%% In another process, so that the pool does not wait.
start_another(Supervisor) ->
    Pool = self(),
    spawn(fun() -> {ok, _} = supervisor:start_child(Supervisor, [Pool]) end).

start_member(Port, LoginMs, LogsInFirst, Pool) ->
    gen_server:start_link(?MODULE, {member, Port, LoginMs, LogsInFirst, Pool}, []).

handle_call(take, {Request, _} = From, #{free := Free, waiting := Waiting, order := Order} = State) ->
    Monitor = erlang:monitor(process, Request),
    case Free of
        [Member | Left] -> {noreply, give(Member, From, Monitor, State#{free := Left})};
        [] -> {noreply, State#{waiting := Waiting#{Monitor => From}, order := queue:in(Monitor, Order)}}
    end;
handle_call(free, _From, #{free := Free} = State) ->
    {reply, length(Free), State};
handle_call(query, _From, {Socket, Left}) ->
    _ = gen_tcp:send(Socket, <<"query">>),
    case gen_tcp:recv(Socket, 6) of
        {ok, <<"answer">>} -> {reply, {answer, Left - 1}, {Socket, Left - 1}};
        {error, _} -> {reply, broken, {Socket, Left}}
    end.

handle_cast({ready, Member}, State) ->
    {noreply, to_next(Member, State)};
handle_cast({return, Member}, State) ->
    {noreply, to_next(Member, taken_back(Member, State))};
handle_cast({replace, Member}, State) ->
    {noreply, replace(Member, taken_back(Member, State))}.

handle_info({'DOWN', Monitor, process, _, _}, #{taken := Taken, waiting := Waiting} = State) ->
    case [Member || {Member, Of} <- maps:to_list(Taken), Of =:= Monitor] of
        %% It exited without returning the member, whose state is therefore unknown.
        [Member] -> {noreply, replace(Member, State#{taken := maps:remove(Member, Taken)})};
        [] -> {noreply, State#{waiting := maps:remove(Monitor, Waiting)}}
    end.

give(Member, From, Monitor, #{taken := Taken} = State) ->
    gen_server:reply(From, Member),
    State#{taken := Taken#{Member => Monitor}}.

taken_back(Member, #{taken := Taken} = State) ->
    #{Member := Monitor} = Taken,
    erlang:demonitor(Monitor, [flush]),
    State#{taken := maps:remove(Member, Taken)}.

to_next(Member, #{free := Free, waiting := Waiting, order := Order} = State) ->
    case queue:out(Order) of
        {empty, _} ->
            State#{free := [Member | Free]};
        {{value, Monitor}, Left} ->
            case Waiting of
                #{Monitor := From} ->
                    give(Member, From, Monitor, State#{waiting := maps:remove(Monitor, Waiting), order := Left});
                #{} ->
                    to_next(Member, State#{order := Left})
            end
    end.

replace(Member, #{supervisor := Supervisor} = State) ->
    ok = supervisor:terminate_child(Supervisor, Member),
    start_another(Supervisor),
    State.

%%% A member

log_in(Port, LoginMs) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    ok = gen_tcp:send(Socket, <<"login", LoginMs:16>>),
    {ok, <<"welcome">>} = gen_tcp:recv(Socket, 7),
    Socket.

%%% The database, in the second VM

drive(_, Control) ->
    #{answer_ms := AnswerMs} = lab:recv(Control),
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {nodelay, true}, {backlog, 64}]),
    {ok, Port} = inet:port(Listen),
    Sessions = ets:new(sessions, [public]),
    lab:start(fun() -> accept(Listen, AnswerMs, Sessions) end),
    lab:send(Control, #{port => Port}),
    restart = lab:recv(Control),
    [Session ! close || {Session} <- ets:tab2list(Sessions)].

accept(Listen, AnswerMs, Sessions) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Session = spawn(fun() -> receive go -> session(Socket, AnswerMs) end end),
    ok = gen_tcp:controlling_process(Socket, Session),
    ets:insert(Sessions, {Session}),
    Session ! go,
    accept(Listen, AnswerMs, Sessions).

%% Exits with its connection.
session(Socket, AnswerMs) ->
    {ok, <<"login", LoginMs:16>>} = gen_tcp:recv(Socket, 7),
    lab:pause(LoginMs),
    _ = gen_tcp:send(Socket, <<"welcome">>),
    answer(Socket, AnswerMs).

answer(Socket, AnswerMs) ->
    case gen_tcp:recv(Socket, 5) of
        {ok, <<"query">>} ->
            receive close -> gen_tcp:close(Socket) after AnswerMs -> gen_tcp:send(Socket, <<"answer">>) end,
            answer(Socket, AnswerMs);
        {error, _} ->
            ok
    end.
