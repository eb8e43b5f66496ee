%% The labs growing-queue and atom-leak in one node.
-module(lab_growing_queue_and_atom_leak).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    lab:both(Context, lab_growing_queue, lab_atom_leak).
