%% The tables, and what the web tier does with them.
-module(billing_db).
-include("billing_db.hrl").
-export([ensure_tables/0, fill/1, pay/1, add_line/3, show/1]).

ensure_tables() ->
    create(invoice, record_info(fields, invoice)),
    create(customer, record_info(fields, customer)),
    ok = mnesia:wait_for_tables([invoice, customer], 20000).

create(Tab, Fields) ->
    case mnesia:create_table(Tab, [{disc_copies, [node()]}, {attributes, Fields}]) of
        {atomic, ok} -> ok;
        {aborted, {already_exists, Tab}} -> ok
    end.

fill(N) ->
    [mnesia:dirty_write(#customer{id = C, name = list_to_binary(io_lib:format("Customer ~b", [C]))})
     || C <- lists:seq(1, 2000)],
    [mnesia:dirty_write(#invoice{id = I, customer = 1 + I rem 2000, cents = 1000 + I rem 7919,
                                 lines = [{1, <<"subscription">>, 1000}]})
     || I <- lists:seq(1, N)],
    ok.

pay(Id) ->
    billing_stats:timed(pay, fun() ->
        mnesia:transaction(fun() ->
            [I] = mnesia:read(invoice, Id, write),
            [C] = mnesia:read(customer, I#invoice.customer, write),
            mnesia:write(I#invoice{state = paid, changed = os:system_time(second)}),
            mnesia:write(C#customer{balance = C#customer.balance + I#invoice.cents})
        end)
    end).

add_line(Id, Text, Cents) ->
    billing_stats:timed(add_line, fun() ->
        mnesia:transaction(fun() ->
            [I = #invoice{lines = Ls}] = mnesia:read(invoice, Id, write),
            Ls1 = lists:sublist([{length(Ls) + 1, Text, Cents} | Ls], 6),
            mnesia:write(I#invoice{lines = Ls1, cents = I#invoice.cents + Cents})
        end)
    end).

show(Id) ->
    billing_stats:timed(show, fun() -> mnesia:dirty_read(invoice, Id) end).
