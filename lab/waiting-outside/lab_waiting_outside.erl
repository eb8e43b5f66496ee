%% A pool of connections to a slow backend on another host (here: the second VM). Each pool worker waits in gen_tcp:recv,
%% all other processes wait for a pool worker, and the CPU is idle. Healthy: the backend answers immediately.
-module(lab_waiting_outside).
-behaviour(gen_server).

-export([start/1, establish/1, drive/1, drive/2]).
-export([init/1, handle_call/3, handle_cast/2]).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 3, 6),
    Clients = Workers * lab:int(Context, clients_per_worker, 8, 14),
    AnswerMs = lab:int(Context, answer_ms, 150, 400),
    Control = lab:await_driver(),
    lab:send(Control, #{answer_ms => case lab:sick(Context) of true -> AnswerMs; false -> 1 end}),
    #{port := Port} = lab:recv(Control),
    Names = lab:names(Context, workers, Workers),
    [{ok, _} = gen_server:start_link({local, Name}, ?MODULE, Port, []) || Name <- Names],
    Served = lab:counter(),
    [lab:start(fun() -> client(list_to_tuple(Names), Served) end) || _ <- lists:seq(1, Clients)],
    case lab:sick(Context) of
        true -> lab:wait_until(queues, fun() -> lists:sum([queue_len(Name) || Name <- Names]) > 4 * Workers end);
        false -> lab:wait_until(served, fun() -> lab:total(Served) > 2 * Clients end)
    end,
    #{
        sick => none,
        details => #{
            workers => {list, Names}, clients => Clients, answer_ms => AnswerMs,
            backend => "127.0.0.1:" ++ integer_to_list(Port)
        },
        driver => Control
    }.

queue_len(Name) ->
    {message_queue_len, Length} = erlang:process_info(whereis(Name), message_queue_len),
    Length.

client(Workers, Served) ->
    lab:pause(300 + rand:uniform(400)),
    Worker = element(rand:uniform(tuple_size(Workers)), Workers),
    <<"answer">> = gen_server:call(Worker, query, infinity),
    lab:count(Served),
    client(Workers, Served).

init(Port) ->
    gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {nodelay, true}]).

handle_call(query, _From, Socket) ->
    ok = gen_tcp:send(Socket, <<"query">>),
    {ok, Answer} = gen_tcp:recv(Socket, 6),
    {reply, Answer, Socket}.

handle_cast(_, Socket) -> {noreply, Socket}.

%% The backend, in the second VM.
drive(_, Control) ->
    #{answer_ms := AnswerMs} = lab:recv(Control),
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}, {nodelay, true}]),
    {ok, Port} = inet:port(Listen),
    lab:start(fun() -> accept(Listen, AnswerMs) end),
    lab:send(Control, #{port => Port}).

accept(Listen, AnswerMs) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Session = lab:start(fun() -> receive go -> session(Socket, AnswerMs) end end),
    ok = gen_tcp:controlling_process(Socket, Session),
    Session ! go,
    accept(Listen, AnswerMs).

session(Socket, AnswerMs) ->
    {ok, <<"query">>} = gen_tcp:recv(Socket, 5),
    lab:pause(AnswerMs),
    ok = gen_tcp:send(Socket, <<"answer">>),
    session(Socket, AnswerMs).
