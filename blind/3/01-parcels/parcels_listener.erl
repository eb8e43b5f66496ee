-module(parcels_listener).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, acceptor/1]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    {ok, Backlog} = application:get_env(parcels, backlog),
    {ok, N} = application:get_env(parcels, acceptors),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, Backlog}, {keepalive, true}]),
    {ok, Port} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    As = [proc_lib:spawn_link(?MODULE, acceptor, [L]) || _ <- lists:seq(1, N)],
    {ok, {L, As}}.
acceptor(L) ->
    case parcels_conns:room() of
        true ->
            {ok, S} = gen_tcp:accept(L),
            {ok, Pid} = parcels_conns:start_locker(S),
            ok = gen_tcp:controlling_process(S, Pid),
            Pid ! go;
        false ->
            timer:sleep(200)
    end,
    acceptor(L).
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
