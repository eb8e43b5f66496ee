%% A meter's session: sleeps (hibernated) until the concentrator's data arrive, then passes them on.
-module(meters_session).
-behaviour(gen_server).
-export([start_link/1, frame/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-record(s, {id, total = 0, last, offline}).

start_link(Id) -> gen_server:start_link(?MODULE, [Id], [{hibernate_after, 1000}]).
frame(Id, Wh) -> gen_server:cast(meters_registry:where(Id), {frame, Wh}).

init([Id]) ->
    meters_registry:register(Id, self()),
    {ok, arm(#s{id = Id}), hibernate}.
handle_call(total, _From, S) -> {reply, S#s.total, S}.
handle_cast({frame, Wh}, S) ->
    meters_batcher:reading(S#s.id, Wh),
    {noreply, arm(S#s{total = S#s.total + Wh, last = erlang:monotonic_time(second)})}.
handle_info(offline, S) -> {noreply, S, hibernate}.

%% a meter that is silent for two hours is shown as offline
arm(S = #s{offline = T}) ->
    T =/= undefined andalso erlang:cancel_timer(T),
    S#s{offline = erlang:send_after(7200000, self(), offline)}.
