%% Two pathologies at once: dirty-io-saturated and port-leak, as those labs have them.
-module(lab_dirty_io_saturated_and_port_leak).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    %% In this order: what a saturated node does not have in memory yet takes long to load.
    lab:both(Context, lab_port_leak, lab_dirty_io_saturated).
