-module(lifts_sup).
-behaviour(application).
-behaviour(supervisor).
-export([start/2, stop/1, init/1]).
start(_, _) ->
    ets:new(lifts_index, [named_table, public, {read_concurrency, true}]),
    {ok, P} = supervisor:start_link({local, ?MODULE}, ?MODULE, []),
    {ok, N} = application:get_env(lifts, lifts),
    {ok, Ks} = application:get_env(lifts, kinds),
    [{ok, _} = supervisor:start_child(lifts_probes_sup, [{I, K}]) || I <- lists:seq(1, N), K <- Ks],
    {ok, P}.
stop(_) -> ok.
init([]) ->
    W = fun(M) -> #{id => M, start => {M, start_link, []}} end,
    {ok, {#{strategy => one_for_one},
          [#{id => probes, type => supervisor, start => {lifts_probe, start_sup, []}}, W(lifts_report), W(lifts_listener)]}}.
