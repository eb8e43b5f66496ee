%% Every six seconds: takes all samples and looks for events common to the stations, in a process that lives for that only.
-module(seismics_analysis).
-behaviour(gen_server).
-export([start_link/0, last/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
last() -> gen_server:call(?MODULE, last).
init([]) ->
    erlang:send_after(6000, self(), analyse),
    {ok, #{last => none, runs => 0}}.
handle_call(last, _, S) -> {reply, maps:get(last, S), S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(analyse, S) ->
    erlang:send_after(6000, self(), analyse),
    Me = self(),
    spawn_link(fun() -> process_flag(priority, low), Me ! {result, analyse()} end),
    {noreply, S};
handle_info({result, R}, #{runs := N} = S) -> {noreply, S#{last := R, runs := N + 1}}.
analyse() ->
    ByStation = lists:foldl(fun({{I, _}, N, V}, M) -> maps:update_with(I, fun(L) -> [{N, V} | L] end, [{N, V}], M) end, #{}, ets:tab2list(seismics_samples)),
    Energies = [{I, energy([V || {_, V} <- lists:sort(L)])} || {I, L} <- maps:to_list(ByStation)],
    lists:sublist(lists:reverse(lists:keysort(2, Energies)), 5).
energy(Vs) -> lists:max([0.0 | [abs(lists:sum([V * math:cos(K * F) || {K, V} <- lists:enumerate(Vs)])) || F <- [0.1, 0.2, 0.4, 0.8]]]).
