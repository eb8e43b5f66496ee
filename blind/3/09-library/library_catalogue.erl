-module(library_catalogue).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2, book/1, lend/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
book(N) -> [B] = ets:lookup(?MODULE, N), B.
lend(N, Reader) -> gen_server:call(?MODULE, {lend, N, Reader}).
init([]) ->
    ets:new(?MODULE, [named_table, {read_concurrency, true}]),
    [ets:insert(?MODULE, {N, <<"Title of the book ", (integer_to_binary(N))/binary>>, list_to_atom("publisher_" ++ integer_to_list(N rem 30000)),
                          binary:copy(<<"keyword ">>, 40 + N rem 12), free}) || N <- lists:seq(1, 500000)],
    {ok, {}}.
handle_call({lend, N, R}, _, S) -> ets:update_element(?MODULE, N, {5, R}), {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
