%% Asks one controller after the other whether it is open (for the status page).
-module(postroom_pulse).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) -> erlang:send_after(5000, self(), next), {ok, {1, 0}}.
handle_call(open, _, {_, O} = S) -> {reply, O, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(next, {N, O}) ->
    Open = postroom_controller:open(N),
    erlang:send_after(150, self(), next),
    {noreply, {N rem 130 + 1, case Open of true -> O + 1; false -> O end}}.
