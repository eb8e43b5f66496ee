%% The labs single-process and huge-port-table in one node.
-module(lab_single_process_and_huge_port_table).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    lab:both(Context, lab_single_process, lab_huge_port_table).
