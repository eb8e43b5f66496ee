-module(gateway_stats).
-behaviour(gen_server).
-export([start_link/0, observe/1]).
-export([init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
observe(Us) ->
    C = persistent_term:get(?MODULE),
    counters:add(C, 1, 1),
    counters:add(C, 2, Us).
init([]) ->
    C = counters:new(2, [write_concurrency]),
    persistent_term:put(?MODULE, C),
    {ok, C}.
handle_call(all, _From, C) -> {reply, {counters:get(C, 1), counters:get(C, 2)}, C}.
handle_cast(_, C) -> {noreply, C}.
