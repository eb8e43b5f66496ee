%% Tells the piers' own nodes what has changed. Piers 4 to 6 were given up in spring.
-module(harbour_piers).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
piers() -> {ok, L} = application:get_env(harbour, piers), L.
init([]) -> self() ! tell, {ok, #{told => 0}}.
handle_call(told, _, S = #{told := N}) -> {reply, N, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(tell, S = #{told := N}) ->
    erlang:send_after(4800, self(), tell),
    [gen_server:cast({harbour_pier, P}, {ships, N}) || P <- piers()],
    {noreply, S#{told := N + 1}}.
