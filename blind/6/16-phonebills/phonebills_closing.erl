%% Looks through the totals for customers over their limit, a part at a time.
-module(phonebills_closing).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(2000, self(), look), {ok, 0}.
handle_call(over, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(look, S) ->
    erlang:send_after(2000, self(), look),
    case ets:match(phonebills_totals, {'$1', '$2'}, 300) of
        {L, _} -> {noreply, S + length([x || [_, N] <- L, N > 100000])};
        _ -> {noreply, S}
    end.
