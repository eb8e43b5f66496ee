-module(stock_db).
-export([prepare/0, sell/3, level/1]).
-record(stock_item, {id, name, level, shelf, changed}).
-record(stock_sale, {key, item, count}).
-record(stock_till_sum, {till, pieces, money}).
-record(stock_day, {item, pieces}).
-record(stock_drawer, {till, cash, opened}).
-record(stock_vat, {key, money}).
prepare() ->
    Tables = [{stock_item, record_info(fields, stock_item)}, {stock_sale, record_info(fields, stock_sale)}, {stock_till_sum, record_info(fields, stock_till_sum)},
              {stock_day, record_info(fields, stock_day)}, {stock_drawer, record_info(fields, stock_drawer)}, {stock_vat, record_info(fields, stock_vat)}],
    [{atomic, ok} = mnesia:create_table(T, [{disc_copies, [node()]}, {attributes, F}]) || {T, F} <- Tables],
    ok = mnesia:wait_for_tables([T || {T, _} <- Tables], 10000),
    [mnesia:sync_dirty(fun() -> [mnesia:write(#stock_item{id = I, name = "article " ++ integer_to_list(I), level = 1000000, shelf = {I rem 40, I rem 17}}) || I <- lists:seq(B * 500 + 1, B * 500 + 500)] end)
     || B <- lists:seq(0, 39)],
    ok.
sell(Till, Item, Count) ->
    mnesia:activity(transaction, fun() ->
        [R] = mnesia:read(stock_item, Item, write),
        ok = mnesia:write(R#stock_item{level = R#stock_item.level - Count, changed = erlang:system_time(second)}),
        ok = mnesia:write(#stock_sale{key = {Till, erlang:unique_integer([monotonic]) rem 400}, item = Item, count = Count}),
        ok = mnesia:write(#stock_day{item = Item, pieces = Count}),
        ok = mnesia:write(#stock_drawer{till = Till, cash = Count * 199, opened = erlang:system_time(second)}),
        ok = mnesia:write(#stock_vat{key = {Till, Item rem 3}, money = Count * 31}),
        case mnesia:read(stock_till_sum, Till, write) of
            [S] -> mnesia:write(S#stock_till_sum{pieces = S#stock_till_sum.pieces + Count, money = S#stock_till_sum.money + Count * 199});
            [] -> mnesia:write(#stock_till_sum{till = Till, pieces = Count, money = Count * 199})
        end
    end).
level(Item) -> case mnesia:dirty_read(stock_item, Item) of [R] -> R#stock_item.level; [] -> none end.
