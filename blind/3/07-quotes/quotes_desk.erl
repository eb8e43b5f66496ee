-module(quotes_desk).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2, quote/2]).
start_link(I) -> gen_server:start_link({local, name(I)}, ?MODULE, I, []).
name(I) -> list_to_atom("quotes_desk_" ++ integer_to_list(I)).
quote(I, P) -> gen_server:call(name(I), {quote, P}).
init(I) -> {ok, #{id => I, n => 0}}.
handle_call({quote, P}, _, #{n := N} = S) ->
    {reply, [{K, quotes_tariff:price(K, P)} || K <- [household, car, life]], S#{n := N + 1}};
handle_call(n, _, #{n := N} = S) -> {reply, N, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
