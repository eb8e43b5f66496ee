%% The newest 500 previews.
-module(postcards_previews).
-behaviour(gen_server).
-export([start_link/0, make/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
make(Kind, N) ->
    Picture = binary:copy(<<N:32, (N * 7):32>>, 2048),
    P = postcards_scale:scale(Picture, case Kind of progressive -> 1; baseline -> 0 end),
    ets:insert(?MODULE, {N rem 500, P}),
    byte_size(P).
init([]) -> ets:new(?MODULE, [named_table, public, {write_concurrency, true}]), {ok, none}.
handle_call(_, _, S) -> {reply, ets:info(?MODULE, size), S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
