%% The labs busy-waiting and process-leak in one node.
-module(lab_busy_waiting_and_process_leak).

-export([start/1, establish/1, drive/1, drive/2]).

start(Args) -> lab:run(?MODULE, Args).
drive(Args) -> lab:drive(?MODULE, Args).
drive(Context, Control) -> lab_busy_waiting:drive(Context, Control).

establish(Context) ->
    lab:both(Context, lab_busy_waiting, lab_process_leak).
