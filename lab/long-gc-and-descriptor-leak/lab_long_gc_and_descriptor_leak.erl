%% The labs long-gc and descriptor-leak in one node.
-module(lab_long_gc_and_descriptor_leak).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    lab:both(Context, lab_long_gc, lab_descriptor_leak).
