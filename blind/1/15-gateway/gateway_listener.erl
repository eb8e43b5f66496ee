-module(gateway_listener).
-behaviour(gen_server).
-export([start_link/0, port/0]).
-export([init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
port() -> gen_server:call(?MODULE, port).
init([]) ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, 2}, {ip, {127,0,0,1}}, {active, false}, {backlog, 256}, {nodelay, true},
                                 {send_timeout, 5000}, {send_timeout_close, true}]),
    [proc_lib:spawn_link(fun() -> accept(L) end) || _ <- lists:seq(1, 4)],
    {ok, L}.
handle_call(port, _From, L) -> {ok, P} = inet:port(L), {reply, P, L}.
handle_cast(_, L) -> {noreply, L}.

accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    {ok, Pid} = gateway_conn_sup:start_conn(S),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! ready,
    accept(L).
