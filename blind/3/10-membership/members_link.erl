%% keeps the connection with the other house
-module(members_link).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    ok = net_kernel:monitor_nodes(true),
    erlang:send_after(1000, self(), look),
    {ok, #{seen => []}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast({greet, From}, S) -> {noreply, S#{greeted => From}}.
handle_info({nodeup, N}, #{seen := Seen} = S) -> {noreply, S#{seen := lists:usort([N | Seen])}};
handle_info({nodedown, _}, S) -> {noreply, S};
handle_info(look, #{seen := Seen} = S) ->
    erlang:send_after(2000, self(), look),
    gen_server:abcast([N || N <- Seen, lists:prefix("members_", atom_to_list(N))], ?MODULE, {greet, node()}),
    {noreply, S}.
