-module(orders_pages).
-export([out/1]).
-include_lib("yaws/include/yaws_api.hrl").

out(A) ->
    T0 = erlang:monotonic_time(microsecond),
    {What, Shop, Page} = case yaws_api:queryvar(A, "shop") of
        {ok, S} ->
            {ok, G} = yaws_api:queryvar(A, "goods"),
            Goods = string:lexemes(G, ","),
            {order, S, io_lib:format("<p>order ~b</p>", [orders_book:add(S, Goods)])};
        undefined ->
            {ok, N} = yaws_api:queryvar(A, "n"),
            case orders_book:state(list_to_integer(N)) of
                {S, Length} -> {state, S, io_lib:format("<p>~s: ~b articles</p>", [S, Length])};
                none -> {state, "none", "<p>no such order</p>"}
            end
    end,
    Time = erlang:monotonic_time(microsecond) - T0,
    Bytes = iolist_size(Page),
    [orders_numbers:sample({K, X}, V) || K <- [time, bytes], V <- [case K of time -> Time; bytes -> Bytes end],
        X <- [all, What, {shop, Shop}, {What, Shop}, {peer, element(1, yaws_peer(A))}, {hour, erlang:system_time(second) div 3600},
             {server, node()}, {What, node()}, {today, date()}, {What, date()}]],
    {html, Page}.

yaws_peer(A) -> case A#arg.client_ip_port of {Ip, Port} -> {Ip, Port}; _ -> {none, 0} end.
