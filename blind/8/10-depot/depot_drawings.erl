%% Drawings are put together from sheets for each request.
-module(depot_drawings).
-behaviour(gen_server).
-export([start_link/0, make/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
make(N) ->
    Sheet = persistent_term:get({?MODULE, N rem 8}),
    iolist_to_binary([<<"part ", (integer_to_binary(N))/binary, 10>>, lists:duplicate(10, Sheet)]).
init([]) ->
    [persistent_term:put({?MODULE, I}, binary:copy(crypto:strong_rand_bytes(600), 100)) || I <- lists:seq(0, 7)],
    {ok, none}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
