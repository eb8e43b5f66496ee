%% A declaration is a list of goods; the answer is the duty. "open" asks how many are in work.
-module(customs_api).
-export([handle/1]).
-record(goods, {nr, kind, name, cents, weight, origin, papers}).
-record(declaration, {id, company, at, goods = [], duty}).

handle([<<"declare">>, Id, Company | Kinds]) ->
    D = #declaration{id = binary_to_integer(Id), company = Company, at = erlang:timestamp(), goods = goods(Kinds)},
    customs_log:info("received ~p", [D]),
    Duty = lists:sum([customs_tariff:duty(G#goods.kind, G#goods.cents) || G <- D#declaration.goods]),
    customs_log:info("priced ~p", [D#declaration{duty = Duty}]),
    integer_to_list(Duty);
handle([<<"open">>]) -> integer_to_list(length(supervisor:which_children(customs_conn_sup)));
handle(_) -> "?".

goods(Kinds) ->
    [#goods{nr = N, kind = binary_to_integer(K), name = "goods of kind " ++ binary_to_list(K), cents = N * 130, weight = {N * 3, kg},
            origin = [{country, N rem 27}, {port, "Rotterdam"}], papers = [{paper, I, {2026, 11, I}, <<"checked">>} || I <- lists:seq(1, 3)]}
     || {N, K} <- lists:zip(lists:seq(1, length(Kinds)), Kinds)].
