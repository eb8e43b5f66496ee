%% Sessions by host.
-module(racks_sessions).
-export([open/1, find/1, read/2]).

open(Host) -> {ok, _} = supervisor:start_child(racks_session_sup, [Host]).

read(Host, Sensor) ->
    case find(Host) of
        {ok, Pid} -> racks_session:read(Pid, Sensor);
        none -> none
    end.

find(Host) ->
    ask(Host, [Pid || {_, Pid, _, _} <- supervisor:which_children(racks_session_sup), is_pid(Pid)]).

ask(_, []) -> none;
ask(Host, [Pid | Rest]) ->
    case gen_server:call(Pid, host) of
        Host -> {ok, Pid};
        _ -> ask(Host, Rest)
    end.
