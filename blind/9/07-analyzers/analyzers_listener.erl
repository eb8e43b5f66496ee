%% Accepts the devices' connections and has a session started for each.
-module(analyzers_listener).
-export([start_link/0, init/1]).
start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
init(Parent) ->
    register(?MODULE, self()),
    {ok, L} = gen_tcp:listen(0, [binary, {packet, line}, {active, false}, {ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 128}]),
    {ok, P} = inet:port(L),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    proc_lib:init_ack(Parent, {ok, self()}),
    loop(L).
loop(L) ->
    case gen_tcp:accept(L) of
        {ok, S} ->
            case supervisor:start_child(analyzers_session_sup, [S]) of
                {ok, Pid} when is_pid(Pid) ->
                    ok = gen_tcp:controlling_process(S, Pid),
                    analyzers_session:go(Pid);
                _ ->            % the session has not come about
                    ok
            end,
            loop(L);
        {error, Reason} ->
            logger:warning("accept: ~p", [Reason]),
            timer:sleep(200),
            loop(L)
    end.
