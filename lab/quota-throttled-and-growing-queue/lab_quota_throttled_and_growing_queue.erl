%% The labs quota-throttled and growing-queue in one node.
-module(lab_quota_throttled_and_growing_queue).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    lab:both(Context, lab_quota_throttled, lab_growing_queue).
