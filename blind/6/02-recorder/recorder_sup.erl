-module(recorder_sup).
-behaviour(supervisor).
-export([start_link/0, init/1]).
start_link() -> supervisor:start_link({local, ?MODULE}, ?MODULE, []).
init([]) ->
    ets:new(recorder_calls, [named_table, public, set, {write_concurrency, true}]),
    W = fun(M, A) -> #{id => {M, A}, start => {M, start_link, A}} end,
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [W(recorder_index, []) | [W(recorder_lane, [N]) || N <- lists:seq(1, 4)]] ++ [W(recorder_listener, [])]}}.
