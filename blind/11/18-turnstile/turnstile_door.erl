%% State of a door; looks twenty times a second whether it must be locked again.
-module(turnstile_door).
-behaviour(gen_server).
-export([start_link/1, opened/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

name(I) -> list_to_atom("turnstile_door_" ++ integer_to_list(I)).
start_link(I) -> gen_server:start_link({local, name(I)}, ?MODULE, I, []).
opened(I) -> gen_server:cast(name(I), opened).

init(I) ->
    erlang:send_after(50 + 2 * I, self(), look),
    {ok, #{door => I, open_until => 0, passes => 0}}.

handle_call(_, _, S) -> {reply, S, S}.
handle_cast(opened, #{passes := N} = S) -> {noreply, S#{open_until := erlang:monotonic_time(millisecond) + 2000, passes := N + 1}}.

handle_info(look, #{open_until := U} = S) ->
    erlang:send_after(50, self(), look),
    case U > 0 andalso erlang:monotonic_time(millisecond) > U of
        true -> {noreply, S#{open_until := 0}};
        false -> {noreply, S}
    end.
