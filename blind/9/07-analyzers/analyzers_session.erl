%% One device: R|device|test|value lines, each is acknowledged.
-module(analyzers_session).
-behaviour(gen_server).
-export([start_link/1, go/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(S) -> gen_server:start_link(?MODULE, S, []).
go(Pid) -> gen_server:cast(Pid, go).
init(S) ->
    case inet:peername(S) of
        {ok, {Ip, Port}} -> {ok, #{socket => S, peer => {Ip, Port}, taken => 0}};
        {error, _} -> ignore            % gone again already
    end.
handle_call(_, _, St) -> {reply, ok, St}.
handle_cast(go, #{socket := S} = St) ->
    ok = inet:setopts(S, [{active, once}]),
    {noreply, St}.
handle_info({tcp, S, Line}, #{taken := N} = St) ->
    case binary:split(string:trim(Line), <<"|">>, [global]) of
        [<<"R">>, Device, Test, Value] ->
            V = binary_to_integer(Value),
            ok = analyzers_results:take(Device, Test, V, analyzers_limits:judge(Test, V)),
            ok = gen_tcp:send(S, <<"A\n">>);
        _ -> ok = gen_tcp:send(S, <<"N\n">>)
    end,
    ok = inet:setopts(S, [{active, once}]),
    {noreply, St#{taken := N + 1}};
handle_info({tcp_closed, _}, St) -> {stop, normal, St};
handle_info({tcp_error, _, _}, St) -> {stop, normal, St}.
