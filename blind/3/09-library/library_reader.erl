-module(library_reader).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2, lends/2]).
start_link(I) -> gen_server:start_link(?MODULE, I, [{hibernate_after, 5000}]).
lends(Pid, Book) -> gen_server:cast(Pid, {lends, Book}).
init(I) ->
    ets:insert(library_reader_pids, {I, self()}),
    {ok, #{id => I, books => [], since => erlang:system_time(second)}}.
handle_call(_, _, S) -> {reply, ok, S}.
handle_cast({lends, B}, #{books := Bs} = S) -> {noreply, S#{books := lists:sublist([B | Bs], 12)}}.
handle_info(_, S) -> {noreply, S}.
