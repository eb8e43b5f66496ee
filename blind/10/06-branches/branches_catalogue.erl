%% All articles with their prices.
-module(branches_catalogue).
-behaviour(gen_server).
-export([start_link/0, price/1, part/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
price(I) -> ets:lookup_element(?MODULE, I, 3).
part(N) -> [hd(ets:lookup(?MODULE, I)) || I <- lists:seq(N * 500, N * 500 + 499)].

init([]) ->
    ets:new(?MODULE, [named_table, protected, {read_concurrency, true}]),
    [ets:insert(?MODULE, {I, <<"Article ", (integer_to_binary(I))/binary>>, 100 + I rem 900, [colour, size, I rem 7], <<"4006381", (integer_to_binary(100000 + I))/binary>>})
     || I <- lists:seq(0, 29999)],
    erlang:send_after(1000, self(), reprice),
    {ok, 0}.

handle_call(_, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(reprice, N) ->
    erlang:send_after(1000, self(), reprice),
    ets:update_element(?MODULE, rand:uniform(30000) - 1, {3, 100 + rand:uniform(900)}),
    {noreply, N + 1}.
