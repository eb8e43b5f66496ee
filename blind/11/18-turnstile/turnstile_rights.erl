%% Who may pass where.
-module(turnstile_rights).
-behaviour(gen_server).
-export([start_link/0, may/2, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
may(Badge, Door) -> gen_server:call(?MODULE, {may, Badge, Door}).

init([]) ->
    {ok, maps:from_list([{<<"b", (integer_to_binary(B))/binary>>, erlang:phash2(B, 1 bsl 25)} || B <- lists:seq(0, 8999)])}.

handle_call({may, Badge, Door}, _, S) -> {reply, maps:get(Badge, S, 0) band (1 bsl Door) =/= 0, S}.
handle_cast(_, S) -> {noreply, S}.
