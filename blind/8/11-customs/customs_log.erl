%% The office's log: a line has at most 4096 characters. One process writes.
-module(customs_log).
-behaviour(gen_server).
-export([start_link/0, info/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

info(Format, Args) ->
    Text = lists:flatten(io_lib:format(Format, Args)),
    Line = lists:sublist(Text, 4096),
    gen_server:cast(?MODULE, {line, calendar:system_time_to_rfc3339(erlang:system_time(second)), unicode:characters_to_binary(Line)}).

init([]) ->
    {ok, F} = file:open(os:getenv("DATA") ++ ".log", [append, raw, {delayed_write, 65536, 1000}]),
    {ok, #{file => F, size => 0}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast({line, At, L}, S = #{file := F, size := Z}) when Z < 40000000 ->
    ok = file:write(F, [At, $\s, L, $\n]), {noreply, S#{size := Z + byte_size(L)}};
handle_cast({line, _, _}, S = #{file := F}) ->
    {ok, _} = file:position(F, 0), ok = file:truncate(F), {noreply, S#{size := 0}}.
handle_info(_, S) -> {noreply, S}.
