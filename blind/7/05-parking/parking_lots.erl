%% Counts the free places. The columns of all car parks report at the full second, so much comes at once.
-module(parking_lots).
-behaviour(gen_server).
-export([start_link/0, changed/2, taken/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], [{spawn_opt, [{message_queue_data, off_heap}]}]).
changed(N, New) -> gen_server:cast(?MODULE, {changed, N, New}).
taken() -> gen_server:call(?MODULE, taken).
init([]) ->
    ets:new(parking_index, [named_table, public, {read_concurrency, true}]),
    {ok, #{taken => #{}, changes => 0}}.
handle_call(taken, _, #{taken := T} = S) -> {reply, map_size(T), S}.
handle_cast({changed, N, taken}, #{taken := T, changes := C} = S) -> {noreply, S#{taken := T#{N => true}, changes := C + 1}};
handle_cast({changed, N, free}, #{taken := T, changes := C} = S) -> {noreply, S#{taken := maps:remove(N, T), changes := C + 1}}.
handle_info(_, S) -> {noreply, S}.
