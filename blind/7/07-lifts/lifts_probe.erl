%% A probe keeps a histogram of the last values of one kind of one lift.
-module(lifts_probe).
-behaviour(gen_server).
-export([start_sup/0, start_link/1, update/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_sup() ->
    supervisor:start_link({local, lifts_probes_sup}, lifts_probe_sup, []).
start_link(Id) ->
    {ok, Opts} = application:get_env(lifts, probe_opts),
    gen_server:start_link(?MODULE, Id, [{spawn_opt, Opts}]).
update(Id, V) ->
    [{_, Pid}] = ets:lookup(lifts_index, Id),
    gen_server:cast(Pid, {update, V}).
init(Id) ->
    ets:insert(lifts_index, {Id, self()}),
    {ok, #{id => Id, n => 0, last => [], buckets => #{}}}.
handle_call(summary, _, #{n := N, last := L, buckets := B} = S) ->
    {reply, {N, case L of [] -> 0; _ -> lists:sum(L) / length(L) end, map_size(B)}, S}.
handle_cast({update, V}, #{n := N, last := L, buckets := B} = S) ->
    L1 = lists:sublist([V | L], 60),
    Sorted = lists:sort(L1),
    Median = lists:nth((length(Sorted) + 1) div 2, Sorted),
    {noreply, S#{n := N + 1, last := L1, median => Median, buckets := maps:update_with(trunc(V) div 10, fun(C) -> C + 1 end, 1, B)}}.
handle_info(_, S) -> {noreply, S}.
