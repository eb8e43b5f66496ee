%% the old pager bridge: its program ends after each message and is started anew; so it was always
-module(presence_printer).
-behaviour(gen_server).
-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    P = open_port({spawn_executable, "/bin/sh"}, [exit_status, {args, ["-c", "sleep 8"]}]),
    {ok, P}.
handle_call(_, _, P) -> {reply, ok, P}.
handle_cast(_, P) -> {noreply, P}.
handle_info({P, {exit_status, 0}}, P) -> {stop, normal, P}.
