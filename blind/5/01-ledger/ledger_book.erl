-module(ledger_book).
-behaviour(gen_server).
-export([start_link/0, balance/1, apply_posting/2, batch/0]).
-export([init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
balance(Account) -> case ets:lookup(ledger_accounts, Account) of [{_, B}] -> B; [] -> 0 end.
apply_posting(Account, Amount) -> gen_server:call(?MODULE, {post, Account, Amount}).
batch() -> gen_server:call(?MODULE, batch).
init([]) ->
    ledger_accounts = ets:new(ledger_accounts, [named_table, protected, {read_concurrency, true}]),
    ets:insert(ledger_accounts, [{N, N * 100} || N <- lists:seq(1, 20000)]),
    {ok, []}.
handle_call({post, Account, Amount}, _From, Open) ->
    New = ets:update_counter(ledger_accounts, Account, Amount, {Account, 0}),
    {reply, {ok, New}, [{Account, Amount, erlang:system_time(millisecond)} | Open]};
handle_call(batch, _From, Open) -> {reply, lists:reverse(Open), []}.
handle_cast(_, S) -> {noreply, S}.
