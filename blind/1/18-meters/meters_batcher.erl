%% Collects readings and writes them out in batches. The concentrators deliver in bursts; what comes in
%% within a burst waits in the mailbox for some tenths of a second.
-module(meters_batcher).
-behaviour(gen_server).
-export([start_link/0, reading/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-record(b, {n = 0, acc = [], written = 0, sums = #{}}).

start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], [{spawn_opt, [{message_queue_data, off_heap}]}]).
reading(Id, Wh) -> gen_server:cast(?MODULE, {reading, Id, Wh, erlang:system_time(second)}).

init([]) ->
    erlang:send_after(1000, self(), flush),
    {ok, #b{}}.
handle_call(written, _From, B) -> {reply, B#b.written, B}.
handle_cast({reading, Id, Wh, T}, B = #b{n = N, acc = Acc, sums = Sums}) ->
    Line = io_lib:format("~b;~b;~b\n", [Id, T, Wh]),
    Sums1 = maps:update_with(Id rem 500, fun(X) -> X + Wh end, Wh, Sums),
    B1 = B#b{n = N + 1, acc = [Line | Acc], sums = Sums1},
    {noreply, if N >= 499 -> write(B1); true -> B1 end}.
handle_info(flush, B) ->
    erlang:send_after(1000, self(), flush),
    {noreply, write(B)}.

write(B = #b{n = 0}) -> B;
write(B = #b{n = N, acc = Acc}) ->
    ok = file:write_file(os:getenv("READINGS"), lists:reverse(Acc)),
    B#b{n = 0, acc = [], written = B#b.written + N}.
