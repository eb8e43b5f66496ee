-module(tiles_store).
-behaviour(gen_server).
-export([start_link/0, tile/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
tile(I) -> ets:lookup_element(?MODULE, I, 2).

init([]) ->
    ets:new(?MODULE, [named_table, protected, {read_concurrency, true}]),
    [ets:insert(?MODULE, {I, render(I), 0}) || I <- lists:seq(0, 11999)],
    erlang:send_after(500, self(), render),
    {ok, 0}.

handle_call(_, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
%% a tile that has changed is drawn again
handle_info(render, N) ->
    erlang:send_after(500, self(), render),
    I = rand:uniform(12000) - 1,
    ets:insert(?MODULE, {I, render(I), N}),
    {noreply, N + 1}.

render(I) -> binary:copy(<<(integer_to_binary(100000 + I))/binary, "pixels">>, 1666).
