%% The labs growing-queue, ets-leak and huge-port-table in one node.
-module(lab_three_at_once).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    lab:all(Context, [lab_growing_queue, lab_ets_leak, lab_huge_port_table]).
