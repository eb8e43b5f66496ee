%% Goes through the events and sums them up per customer, kind and hour. Keeps what it has read,
%% for the bills' itemised lists, until the sums are written.
-module(rollup_hourly).
-behaviour(gen_server).
-export([start_link/0, sums/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-record(st, {seq = 0, sums = #{}, items = #{}, runs = 0}).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
sums() -> gen_server:call(?MODULE, sums, 3000).

init([]) ->
    self() ! step,
    {ok, #st{}}.

handle_call(sums, _From, S) -> {reply, maps:size(S#st.sums), S}.
handle_cast(_, S) -> {noreply, S}.

handle_info(step, S) ->
    case steps(S, 2500) of
        {more, S1} ->
            erlang:send_after(15, self(), step),
            {noreply, S1};
        {done, S1} ->
            ok = write(S1),
            erlang:send_after(60000, self(), step),
            {noreply, #st{runs = S1#st.runs + 1}}
    end.

steps(S, 0) -> {more, S};
steps(S = #st{seq = Seq, sums = Sums, items = Items}, N) ->
    case rollup_events:next(Seq) of
        done -> {done, S};
        {Seq1, T, C, K, A} ->
            Key = {C, K, T div 3600},
            Line = {T, K, A, integer_to_list(A * 3) ++ " ct"},
            steps(S#st{seq = Seq1,
                       sums = maps:update_with(Key, fun(X) -> X + A end, A, Sums),
                       items = maps:update_with(C, fun(L) -> [Line | L] end, [Line], Items)}, N - 1)
    end.

write(#st{sums = Sums}) ->
    ets:insert(rollup_events_done, {os:system_time(second), maps:size(Sums)}),
    ok.
