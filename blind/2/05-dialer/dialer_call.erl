%% One leg of a call: a frame of 40 ms each, and a watchdog that ends the call when there is no frame for some time.
-module(dialer_call).
-behaviour(gen_server).
-export([start_link/2, init/1, handle_call/3, handle_cast/2, handle_info/2, silent/1]).
-record(call, {id, left, frames = 0, seq = 0, watchdog}).

start_link(Id, Seconds) -> gen_server:start_link(?MODULE, {Id, Seconds}, []).

init({Id, Seconds}) ->
    erlang:send_after(rand:uniform(40), self(), frame),
    dialer_billing:begun(Id),
    {ok, #call{id = Id, left = Seconds * 1000, watchdog = watch()}}.

watch() ->
    {ok, W} = timer:apply_after(8000, ?MODULE, silent, [self()]),
    W.

silent(Pid) -> gen_server:cast(Pid, silent).

handle_call(frames, _, C) -> {reply, C#call.frames, C}.
handle_cast(silent, C) -> {stop, normal, C}.
handle_info(frame, #call{left = L} = C) when L =< 0 ->
    {ok, cancel} = timer:cancel(C#call.watchdog),
    dialer_billing:ended(C#call.id, C#call.frames),
    {stop, normal, C};
handle_info(frame, #call{frames = F, seq = S} = C) ->
    erlang:send_after(40, self(), frame),
    ets:update_counter(dialer_mix, C#call.id band 63, 1, {0, 0}),
    {ok, cancel} = timer:cancel(C#call.watchdog),
    {noreply, C#call{frames = F + 1, seq = (S + 1) band 16#ffff, left = C#call.left - 40, watchdog = watch()}}.
