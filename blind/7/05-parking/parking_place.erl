%% One place: a state machine that sleeps most of the day.
-module(parking_place).
-behaviour(supervisor).
-export([start_sup/0, init/1, start_link/1, loop_init/2, loop/2]).
start_sup() -> supervisor:start_link({local, parking_places_sup}, ?MODULE, []).
init([]) -> {ok, {#{strategy => simple_one_for_one}, [#{id => place, start => {?MODULE, start_link, []}}]}}.
start_link(N) -> proc_lib:start_link(?MODULE, loop_init, [self(), N]).
loop_init(Parent, N) ->
    ets:insert(parking_index, {N, self()}),
    proc_lib:init_ack(Parent, {ok, self()}),
    proc_lib:hibernate(?MODULE, loop, [N, free]).
loop(N, State) ->
    receive
        {report, State} -> proc_lib:hibernate(?MODULE, loop, [N, State]);
        {report, New} -> parking_lots:changed(N, New), proc_lib:hibernate(?MODULE, loop, [N, New])
    end.
