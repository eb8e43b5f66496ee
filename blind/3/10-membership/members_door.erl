-module(members_door).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(I) -> gen_server:start_link(?MODULE, I, []).
init(I) -> erlang:send_after(500 + I * 40, self(), person), {ok, #{door => I, entered => 0}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(person, #{door := D, entered := N} = S) ->
    erlang:send_after(300 + rand:uniform(400), self(), person),
    {atomic, ok} = members_db:enter(rand:uniform(3000), D),
    {noreply, S#{entered := N + 1}}.
