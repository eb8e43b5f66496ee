%% Every ten seconds a summary of some lifts for the control room.
-module(lifts_report).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(10000, self(), report), {ok, #{at => 1, rows => []}}.
handle_call(rows, _, #{rows := R} = S) -> {reply, R, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(report, #{at := At}) ->
    Rows = [{I, gen_server:call(P, summary)} || I <- lists:seq(At, At + 49), {_, P} <- ets:lookup(lifts_index, {I, load})],
    erlang:send_after(10000, self(), report),
    {noreply, #{at => case At > 250 of true -> 1; false -> At + 50 end, rows => Rows}}.
