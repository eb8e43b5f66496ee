-module(library_desk).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(I) -> gen_server:start_link(?MODULE, I, []).
init(I) -> erlang:send_after(5000 + I * 10, self(), reader), {ok, 0}.
handle_call(_, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(reader, S) ->
    erlang:send_after(60 + rand:uniform(80), self(), reader),
    R = rand:uniform(9000), N = rand:uniform(500000),
    _ = library_catalogue:book(N),
    ok = library_catalogue:lend(N, R),
    library_reader:lends(library_readers:pid(R), N),
    {noreply, S + 1}.
