%% One partition of the ledger: a log, an index, the hints of the index and a snapshot. Every few seconds the log and
%% the index are rolled over: the new segment is opened first, the old one closed when the new one has its header.
-module(ledgers_partition).
-behaviour(gen_server).
-export([start_link/1, book/3, balance/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
-record(s, {n, log, index, hints, snapshot, seg = 1, accounts = #{}, failed = 0}).

start_link(N) -> gen_server:start_link({local, name(N)}, ?MODULE, N, []).
name(N) -> list_to_atom("ledgers_p" ++ integer_to_list(N)).
book(N, Account, Cents) -> gen_server:call(name(N), {book, Account, Cents}).
balance(N, Account) -> gen_server:call(name(N), {balance, Account}).

init(N) ->
    S = #s{n = N, log = must(open(N, 1, "log")), index = must(open(N, 1, "index")), hints = must(open(N, 0, "hints")), snapshot = must(open(N, 0, "snapshot"))},
    erlang:send_after(next(), self(), rollover),
    {ok, S}.

must({ok, F}) -> F.

%% all partitions roll over at the same time, so that a backup finds segments that belong together
next() -> 4000 - erlang:system_time(millisecond) rem 4000.

open(N, Seg, What) ->
    file:open(filename:join(os:getenv("DATA"), lists:concat(["p", N, ".", Seg, ".", What])), [append, raw, binary]).

handle_call({book, A, Cents}, _, S = #s{accounts = M}) ->
    New = maps:get(A, M, 0) + Cents,
    ok = file:write(S#s.log, <<A:32, Cents:32/signed, New:64/signed>>),
    ok = file:write(S#s.index, <<A:32>>),
    {reply, New, S#s{accounts = M#{A => New}}};
handle_call({balance, A}, _, S) -> {reply, maps:get(A, S#s.accounts, 0), S};
handle_call(failed, _, S) -> {reply, S#s.failed, S}.

handle_cast(_, S) -> {noreply, S}.

handle_info(rollover, S = #s{n = N, seg = Seg}) ->
    erlang:send_after(next(), self(), rollover),
    case open(N, Seg + 1, "log") of
        {ok, L} ->
            case open(N, Seg + 1, "index") of
                {ok, I} ->
                    ok = file:write(L, <<"LEDGER2", N:32>>), ok = file:write(I, <<"INDEX2", N:32>>),
                    %% the backup may copy the old segment now
                    timer:sleep(400),
                    file:close(S#s.log), file:close(S#s.index),
                    [file:delete(filename:join(os:getenv("DATA"), lists:concat(["p", N, ".", Seg - 2, ".", W]))) || W <- ["log", "index"]],
                    {noreply, S#s{log = L, index = I, seg = Seg + 1}};
                {error, Why} -> file:close(L), failed(Why, S)
            end;
        {error, Why} -> failed(Why, S)
    end.

failed(Why, S) ->
    logger:error("partition ~p: no new segment: ~p", [S#s.n, Why]),
    {noreply, S#s{failed = S#s.failed + 1}}.
