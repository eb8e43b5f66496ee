%% Knows which files lie in the spool and gives out the oldest.
-module(phonebills_spool).
-behaviour(gen_server).
-export([start_link/0, next/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
next() -> gen_server:call(?MODULE, next).
init([]) -> self() ! look, {ok, #{dir => os:getenv("SPOOL"), files => [], last => "", imported => 0}}.
handle_call(next, _, S = #{files := [F | R], dir := D, imported := N}) -> {reply, {file, filename:join(D, F)}, S#{files := R, imported := N + 1}};
handle_call(next, _, S) -> {reply, none, S};
handle_call(status, _, S = #{files := F, imported := N}) -> {reply, #{waiting => length(F), imported => N}, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(look, S = #{dir := D, files := Known, last := Last}) ->
    erlang:send_after(1000, self(), look),
    {ok, All} = file:list_dir(D),
    New = lists:sort([F || F <- All, F > Last, lists:suffix(".cdr", F)]),
    {noreply, S#{files := Known ++ New, last := lists:last([Last | New])}}.
