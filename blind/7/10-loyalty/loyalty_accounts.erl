-module(loyalty_accounts).
-export([create/0, book/3, points/1, all/0]).
-record(account, {id, points = 0, level = blue, last}).
-record(rule, {shop, factor}).
create() ->
    {atomic, ok} = mnesia:create_table(account, [{attributes, record_info(fields, account)}, {ram_copies, [node()]}]),
    {atomic, ok} = mnesia:create_table(rule, [{attributes, record_info(fields, rule)}, {ram_copies, [node()]}]),
    [ok = mnesia:dirty_write(#account{id = {customer, N}, points = 1000}) || N <- lists:seq(1, 20000)],
    [ok = mnesia:dirty_write(#account{id = {partner, N}, points = 100000}) || N <- lists:seq(1, 12)],
    [ok = mnesia:dirty_write(#rule{shop = N, factor = 1 + N rem 3}) || N <- lists:seq(1, 12)],
    ok.
%% a sale: the customer gets points from the account of the partner
book(Customer, Shop, Cents) ->
    loyalty_db:run(fun() ->
        #rule{factor = F} = loyalty_db:read(rule, Shop),
        P = loyalty_db:read(account, {partner, Shop}),
        C = loyalty_db:read(account, {customer, Customer}),
        ok = loyalty_limits:allowed(Shop, Cents),
        N = Cents * F div 100,
        Level = level(C#account.points + N, P),
        loyalty_db:write(C#account{points = C#account.points + N, level = Level, last = Shop}),
        loyalty_db:write(P#account{points = P#account.points - N}),
        {N, Level}
    end).
level(Points, P) ->
    _ = erlang:phash2([P || _ <- lists:seq(1, 1500)]),
    if Points > 20000 -> gold; Points > 5000 -> silver; true -> blue end.
points(Customer) ->
    loyalty_db:run(fun() -> (loyalty_db:read(account, {customer, Customer}))#account.points end).
all() -> lists:sum([P || {_, P} <- mnesia:dirty_select(account, [{#account{id = '$1', points = '$2', _ = '_'}, [], [{{'$1', '$2'}}]}])]).
