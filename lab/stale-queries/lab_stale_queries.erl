%% Sessions that make queries through a connection pool, and time out after two seconds; their clients retry. All came at
%% once, and since then the connections make queries of sessions that have timed out. Each of these crashes, and its
%% report goes to a slow log, for which other processes wait as well. Healthy: a connection drops queries that are too
%% old.
-module(lab_stale_queries).
-behaviour(gen_server).

-export([start/1, establish/1, drive/1, drive/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_continue/2]).

-include_lib("kernel/include/logger.hrl").

%% Time-out of a session, and the time after which its client retries.
-define(PATIENCE_MS, 2000).
-define(RETRY_MS, 100).
-define(QUERIES, 3).
%% Write rate of the log.
-define(WRITTEN_BYTES_PER_S, 60000).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    Sick = lab:sick(Context),
    Connections = lab:int(Context, connections, 3, 5),
    AnswerMs = lab:int(Context, answer_ms, 45, 65),
    %% Backlog of a connection when all clients come at once: more than their time-out. Later it is three queries every
    %% fifteen seconds, less than three quarters of what the database can answer.
    FirstWaveMs = lab:int(Context, first_wave_ms, 2700, 3600),
    Clients = Connections * (FirstWaveMs div AnswerMs),
    Fields = lab:int(Context, fields, 8, 14),
    FrontPerS = lab:int(Context, front_requests_per_s, 2, 4),
    Handler = lab:name(Context, handler),
    Logger = slow_log(Handler),
    Control = lab:await_driver(),
    lab:send(Control, #{answer_ms => AnswerMs}),
    #{port := Port} = lab:recv(Control),
    Names = lab:names(Context, connections, Connections),
    [{ok, _} = gen_server:start_link({local, Name}, ?MODULE, {connection, Port, Sick}, []) || Name <- Names],
    TimedOut = lab:counter(),
    LoggedIn = lab:counter(),
    [
        lab:start(fun() -> client(list_to_tuple(Names), Fields, LoggedIn, TimedOut) end)
     || _ <- lists:seq(1, Clients)
    ],
    [lab:start(fun() -> front(N, FrontPerS) end) || N <- lists:seq(1, 10)],
    Queued = fun() -> lists:sum([queue_len(Name) || Name <- Names]) end,
    case Sick of
        true ->
            lab:wait_until(too_late, fun() -> lab:total(TimedOut) > 3 * Clients andalso Queued() > 2 * Clients end);
        false ->
            lab:wait_until(all_in, fun() ->
                lab:total(LoggedIn) > Clients andalso queue_len(Logger) =:= 0 andalso
                    lab:per_second(TimedOut, 3000) =:= 0
            end)
    end,
    #{
        sick => none,
        details => #{
            connections => {list, Names}, answer_ms => AnswerMs, first_wave_ms => FirstWaveMs, clients => Clients, fields => Fields, logger => Logger,
            front_requests_per_s => 10 * FrontPerS, database => "127.0.0.1:" ++ integer_to_list(Port)
        },
        driver => Control
    }.

slow_log(Handler) ->
    Pipe = lab_logger_overload:slow_pipe(?WRITTEN_BYTES_PER_S),
    _ = logger:remove_handler(default),
    Type = {file, Pipe, [append, {delayed_write, 1024, 100}]},
    ok = logger:add_handler(Handler, logger_std_h, #{config => #{type => Type, filesync_repeat_interval => no_repeat}}),
    list_to_atom("logger_std_h_" ++ atom_to_list(Handler)).

queue_len(Name) ->
    {message_queue_len, Length} = erlang:process_info(whereis(Name), message_queue_len),
    Length.

%% Logs in, stays for some time, and logs in again; immediately, if the login failed.
client(Connections, Fields, LoggedIn, TimedOut) ->
    Login = make_ref(),
    {ok, Session} = gen_server:start(?MODULE, {session, Connections, Fields, self(), Login}, []),
    case logged_in(Login, ?QUERIES) of
        true ->
            lab:count(LoggedIn),
            lab:pause(10000 + rand:uniform(10000)),
            gen_server:cast(Session, log_out);
        false ->
            lab:count(TimedOut),
            lab:pause(rand:uniform(2 * ?RETRY_MS))
    end,
    client(Connections, Fields, LoggedIn, TimedOut).

logged_in(_, 0) -> true;
logged_in(Login, Left) ->
    receive
        {Login, step} -> logged_in(Login, Left - 1)
    after ?PATIENCE_MS + ?RETRY_MS -> false
    end.

%% Does not use the database.
front(N, PerS) ->
    lab:at_rate(PerS, fun(Due) ->
        [?LOG_NOTICE("front ~b: request ~b served", [N, Job]) || Job <- lists:seq(1, Due)]
    end).

init({connection, Port, Sick}) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]),
    {ok, {connection, Socket, Sick}};
init({session, _, Fields, _, _} = Session) ->
    State = maps:from_list([{{field, N}, {N, self(), lists:seq(1, N)}} || N <- lists:seq(1, Fields)]),
    {ok, State, {continue, Session}}.

handle_continue({session, Connections, _, Client, Login}, State) ->
    [
        begin
            Connection = element(rand:uniform(tuple_size(Connections)), Connections),
            {answer, _} = gen_server:call(Connection, {query, N, erlang:monotonic_time(millisecond)}, ?PATIENCE_MS),
            Client ! {Login, step}
        end
     || N <- lists:seq(1, ?QUERIES)
    ],
    {noreply, State}.

handle_call({query, N, AskedAt}, _From, {connection, Socket, Sick} = State) ->
    Waited = erlang:monotonic_time(millisecond) - AskedAt,
    case Sick orelse Waited < ?PATIENCE_MS div 2 of
        true ->
            ok = gen_tcp:send(Socket, <<"query">>),
            {ok, Answer} = gen_tcp:recv(Socket, 6),
            {reply, {answer, {N, Answer}}, State};
        false ->
            {noreply, State}
    end.

handle_cast(log_out, State) -> {stop, normal, State}.

%% The database, in the second VM.
drive(Context, Control) -> lab_waiting_outside:drive(Context, Control).
