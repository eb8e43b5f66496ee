%% A connection pool from which each request checks out one. Sick: a request calls a slow service while it holds the
%% connection. Healthy: it calls the same service before it checks out one.
-module(lab_pool_exhausted).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Connections = lab:int(Context, connections, 4, 10),
    Requests = Connections * lab:int(Context, requests_per_connection, 12, 25),
    ServiceMs = lab:int(Context, service_ms, 100, 300),
    {Called, Pool} = lab:server(Context, pool, {?MODULE, Connections}),
    Served = lab:counter(),
    Sick = lab:sick(Context),
    [lab:start(fun() -> request(Sick, Pool, ServiceMs, Served) end) || _ <- lists:seq(1, Requests)],
    lab:wait_until(served, fun() -> lab:total(Served) > 2 * Connections end),
    #{
        sick => lab:culprit(Context, Called),
        details => #{connections => Connections, requests => Requests, service_ms => ServiceMs}
    }.

%% A request arrives, is served, and the next one of the same user follows a little later.
request(Sick, Pool, ServiceMs, Served) ->
    lab:pause(rand:uniform(200)),
    serve(Sick, Pool, ServiceMs),
    lab:count(Served),
    request(Sick, Pool, ServiceMs, Served).

serve(true, Pool, ServiceMs) ->
    Connection = checkout(Pool),
    call_service(ServiceMs),
    query(Connection),
    checkin(Pool, Connection);
serve(false, Pool, ServiceMs) ->
    call_service(ServiceMs),
    Connection = checkout(Pool),
    query(Connection),
    checkin(Pool, Connection).

%% Uses the result, as pools do: so this function is in the call stack of the waiting process.
checkout(Pool) ->
    Connection = gen_server:call(Pool, checkout, infinity),
    true = is_integer(Connection),
    Connection.

checkin(Pool, Connection) -> gen_server:cast(Pool, {checkin, Connection}).

call_service(Ms) -> lab:pause(Ms).

query(_Connection) -> lab:pause(1).

%% The pool: free connections, and a FIFO of waiting callers.
init(Connections) -> {ok, {lists:seq(1, Connections), queue:new()}}.

handle_call(checkout, _, {[Connection | Free], Waiting}) -> {reply, Connection, {Free, Waiting}};
handle_call(checkout, From, {[], Waiting}) -> {noreply, {[], queue:in(From, Waiting)}}.

handle_cast({checkin, Connection}, {Free, Waiting}) ->
    case queue:out(Waiting) of
        {{value, From}, Left} ->
            gen_server:reply(From, Connection),
            {noreply, {Free, Left}};
        {empty, _} -> {noreply, {[Connection | Free], Waiting}}
    end.

handle_info(_, State) -> {noreply, State}.
