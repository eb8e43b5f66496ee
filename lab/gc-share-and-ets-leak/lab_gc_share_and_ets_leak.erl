%% The labs gc-share and ets-leak in one node.
-module(lab_gc_share_and_ets_leak).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    lab:both(Context, lab_gc_share, lab_ets_leak).
