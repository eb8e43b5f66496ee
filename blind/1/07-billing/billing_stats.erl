-module(billing_stats).
-behaviour(gen_server).
-export([start_link/0, timed/2, observe/2]).
-export([init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

timed(What, Fun) ->
    {Us, R} = timer:tc(Fun),
    observe(What, Us),
    R.

observe(What, Us) -> ets:update_counter(?MODULE, What, [{2, 1}, {3, Us}], {What, 0, 0}).

init([]) ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    {ok, []}.
handle_call(all, _From, S) -> {reply, ets:tab2list(?MODULE), S}.
handle_cast(_, S) -> {noreply, S}.
