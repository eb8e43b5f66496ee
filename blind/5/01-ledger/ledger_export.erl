%% sends the postings since the last batch to the clearing house
-module(ledger_export).
-behaviour(gen_server).
-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    erlang:send_after(1500, self(), export),
    {ok, 1}.
handle_call(number, _From, N) -> {reply, N, N}.
handle_cast(_, N) -> {noreply, N}.
handle_info(export, N) ->
    {ok, Sum} = global:trans({ledger, self()}, fun() -> deliver(N, ledger_book:batch()) end),
    logger:info("batch ~p delivered, ~p", [N, Sum]),
    erlang:send_after(1500, self(), export),
    {noreply, N + 1}.
deliver(N, Postings) ->
    Port = list_to_integer(os:getenv("CLEARING_PORT")),
    {ok, S} = gen_tcp:connect({127,0,0,1}, Port, [binary, {active, false}, {packet, line}]),
    ok = gen_tcp:send(S, [io_lib:format("BATCH ~p ~p~n", [N, length(Postings)]),
                          [io_lib:format("~p;~p;~p~n", [A, M, T]) || {A, M, T} <- Postings]]),
    {ok, <<"ACK ", Sum/binary>>} = gen_tcp:recv(S, 0),
    gen_tcp:close(S),
    {ok, Sum}.
