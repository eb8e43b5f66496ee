-module(members_cards).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(1000, self(), print), {ok, 0}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(print, S) ->
    erlang:send_after(200, self(), print),
    _ = members_db:visits(rand:uniform(3000)),
    {noreply, S + 1}.
