-module(tours_mail).
-behaviour(gen_server).
-export([start_link/0, ticket/1]).
-export([init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
ticket(D) -> gen_server:cast(?MODULE, {ticket, D}).
init([]) -> {ok, 0}.
handle_call(sent, _, N) -> {reply, N, N}.
handle_cast({ticket, #{customer := C, tour := T, places := P}}, N) ->
    _ = iolist_to_binary(io_lib:format("Dear ~s, tour ~p, places ~w", [C, T, P])),
    {noreply, N + 1}.
