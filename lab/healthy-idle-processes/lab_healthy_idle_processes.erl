%% Many idle processes, as in a node with as many idle connections.
-module(lab_healthy_idle_processes).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Processes = lab:int(Context, processes, 100000, 100000),
    Supervisor = lab:name(Context, supervisor),
    lab:start(Supervisor, fun() ->
        [proc_lib:spawn(fun session/0) || _ <- lists:seq(1, Processes)],
        receive never -> ok end
    end),
    lab:wait_until(spawned, fun() -> erlang:system_info(process_count) > Processes end),
    #{sick => none, details => #{processes => Processes, supervisor => Supervisor}}.

session() ->
    receive never -> ok end.
