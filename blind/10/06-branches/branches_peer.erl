%% Runs on the branches' nodes: the copy of the catalogue, the stock.
-module(branches_peer).
-export([start/0, init/0]).

start() -> spawn(?MODULE, init, []).

init() ->
    register(?MODULE, self()),
    loop(ets:new(copy, [])).

loop(T) ->
    receive
        {catalogue, _, Rows} -> ets:insert(T, Rows), loop(T);
        {stock, From, Ref, I} -> From ! {Ref, (I * 7919) rem 23}, loop(T)
    end.
