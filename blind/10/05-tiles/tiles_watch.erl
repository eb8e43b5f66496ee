%% A device that is subscribed to an area.
-module(tiles_watch).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link(Area) -> gen_server:start_link(?MODULE, Area, []).

init(Area) ->
    erlang:send_after(rand:uniform(60000), self(), beat),
    {ok, {Area, 0}, hibernate}.

handle_call(_, _, S) -> {reply, ok, S, hibernate}.
handle_cast(_, S) -> {noreply, S, hibernate}.
handle_info(beat, {Area, N}) ->
    erlang:send_after(60000, self(), beat),
    {noreply, {Area, N + 1}, hibernate}.
