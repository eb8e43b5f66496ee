%% Orders that are not printed yet.
-module(kitchens_queue).
-export([start_link/0, order/1, take/0, waiting/0, init/1]).

start_link() -> proc_lib:start_link(?MODULE, init, [self()]).

order(O) -> kitchens_queue ! {order, O}, ok.
take() -> ask(take).
waiting() -> ask(waiting).

ask(What) ->
    M = monitor(process, kitchens_queue),
    kitchens_queue ! {What, self(), M},
    receive
        {M, A} -> demonitor(M, [flush]), A;
        {'DOWN', M, _, _, R} -> exit(R)
    end.

init(Parent) ->
    register(kitchens_queue, self()),
    proc_lib:init_ack(Parent, {ok, self()}),
    loop(queue:new()).

loop(Q) ->
    receive
        {order, O} -> loop(queue:in(O, Q));
        {take, From, Ref} ->
            case queue:out(Q) of
                {empty, _} -> From ! {Ref, empty}, loop(Q);
                {{value, O}, Q1} -> From ! {Ref, {order, O}}, loop(Q1)
            end;
        {waiting, From, Ref} -> From ! {Ref, queue:len(Q)}, loop(Q)
    end.
