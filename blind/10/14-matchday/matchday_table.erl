-module(matchday_table).
-export([start_link/0, event/1, init/1]).

start_link() -> proc_lib:start_link(?MODULE, init, [self()]).
event(Minute) -> matchday_table ! {event, Minute}, ok.

init(Parent) ->
    register(matchday_table, self()),
    proc_lib:init_ack(Parent, {ok, self()}),
    loop(0).

loop(N) -> receive {event, _} -> loop(N + 1) end.
