-module(racks_alarms).
-behaviour(gen_server).
-export([start_link/0, raise/2, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
raise(Host, T) -> gen_server:cast(?MODULE, {hot, Host, T}).

init([]) -> {ok, []}.
handle_call(last, _, S) -> {reply, S, S}.
handle_cast({hot, Host, T}, S) -> {noreply, lists:sublist([{Host, T, erlang:system_time(second)} | S], 50)}.
