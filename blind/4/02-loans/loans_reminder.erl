%% Looks through a part of the loans each second.
-module(loans_reminder).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(1000, self(), look), {ok, 0}.
handle_call(_, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(look, S) ->
    _ = [loans_store:who(B) || B <- lists:seq(S, S + 500)],
    erlang:send_after(1000, self(), look),
    {noreply, (S + 500) rem 30000}.
