-module(recorder_listener).
-export([start_link/0, init/0]).
start_link() -> proc_lib:start_link(?MODULE, init, []).
init() ->
    {ok, L} = gen_tcp:listen(0, [binary, {packet, 2}, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, P} = inet:port(L),
    register(?MODULE, self()),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(P)),
    proc_lib:init_ack({ok, self()}),
    accept(L).
accept(L) ->
    {ok, S} = gen_tcp:accept(L),
    Pid = spawn(fun() -> receive go -> serve(S) end end),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    accept(L).
serve(S) ->
    case gen_tcp:recv(S, 0) of
        {ok, <<"F", Call:32, Leg:8, Data/binary>>} ->
            ets:update_counter(recorder_calls, frames, 1, {frames, 0}),
            recorder_lane:frame(Call, Leg, Data), serve(S);
        {ok, <<"B", Call:32, Leg:8>>} -> recorder_lane:bye(Call, Leg), serve(S);
        {error, closed} -> ok
    end.
