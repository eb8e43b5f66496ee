%% The web tier's requests: mostly changes of invoices, some views.
-module(billing_users).
-export([start/2]).

start(N, Invoices) ->
    [spawn_link(fun() -> loop(Invoices) end) || _ <- lists:seq(1, N)],
    receive stop -> ok end.

loop(Invoices) ->
    timer:sleep(100 + rand:uniform(400)),
    Id = rand:uniform(Invoices),
    case rand:uniform(4) of
        1 -> billing_db:show(Id);
        2 -> billing_db:pay(Id);
        _ -> billing_db:add_line(Id, <<"usage">>, rand:uniform(500))
    end,
    loop(Invoices).
