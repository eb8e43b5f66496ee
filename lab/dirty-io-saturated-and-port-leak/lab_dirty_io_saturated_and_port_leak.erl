%% The labs dirty-io-saturated and port-leak in one node.
-module(lab_dirty_io_saturated_and_port_leak).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    %% In this order, because a saturated node takes long to load code that is not in memory yet.
    lab:both(Context, lab_port_leak, lab_dirty_io_saturated).
