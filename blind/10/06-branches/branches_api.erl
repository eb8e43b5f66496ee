-module(branches_api).
-export([answer/1]).

answer([<<"price">>, I]) -> [<<"price ">>, integer_to_binary(branches_catalogue:price(binary_to_integer(I)))];
answer([<<"stock">>, B, I]) ->
    Node = list_to_atom(lists:concat(["branch", binary_to_list(B), "@127.0.1.", binary_to_list(B)])),
    case lists:member(Node, nodes()) of
        false -> <<"offline">>;
        true ->
            M = monitor(process, {branches_peer, Node}),
            {branches_peer, Node} ! {stock, self(), M, binary_to_integer(I)},
            receive
                {M, K} -> demonitor(M, [flush]), [<<"stock ">>, integer_to_binary(K)];
                {'DOWN', M, _, _, _} -> <<"offline">>
            after 2000 ->
                demonitor(M, [flush]), <<"timeout">>
            end
    end.
