%% a gate sends what it did: while the network was away it kept the passages and delivers them in one go
-module(turnstile_gate).
-behaviour(gen_server).
-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
-include_lib("kernel/include/logger.hrl").
start_link(N) -> gen_server:start_link(?MODULE, N, []).
init(N) ->
    erlang:send_after(3000, self(), {passages, 4500}),
    {ok, N}.
handle_call(_, _, N) -> {reply, ok, N}.
handle_cast(_, N) -> {noreply, N}.
handle_info({passages, Count}, N) ->
    [passage(N, rand:uniform(1000000)) || _ <- lists:seq(1, Count)],
    erlang:send_after(500, self(), {passages, 12}),
    {noreply, N}.
passage(Gate, Ticket) ->
    {ok, Block, Row} = turnstile_tickets:check(Ticket),
    turnstile_counter:passed(Gate),
    ?LOG_INFO("gate ~p ticket ~p block ~p row ~p", [Gate, Ticket, Block, Row], #{passage => true}).
