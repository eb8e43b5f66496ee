%% A printer in one of the kitchens.
-module(kitchens_printer).
-export([start_link/1, init/2, loop/3]).

start_link(I) -> proc_lib:start_link(?MODULE, init, [self(), I]).

init(Parent, I) ->
    proc_lib:init_ack(Parent, {ok, self()}),
    loop(I, 0, <<>>).

loop(I, N, Last) ->
    case kitchens_queue:take() of
        {order, {Table, Dish, At}} ->
            Text = iolist_to_binary(io_lib:format("~s: ~s (~w) ~w", [Table, kitchens_menu:name(Dish), At, N])),
            loop(I, N + 1, Text);
        empty ->
            timer:sleep(8),
            loop(I, N, Last)
    end.
