%% The bookings, with a journal that is compacted now and then.
-module(studios_store).
-behaviour(gen_server).
-export([start_link/0, save/2, remove/2, occupancy/1, taken/2, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
save(Studio, Slot) -> gen_server:call(?MODULE, {save, Studio, Slot}, infinity).
remove(Studio, Slot) -> gen_server:call(?MODULE, {remove, Studio, Slot}, infinity).
occupancy(Studio) -> gen_server:call(?MODULE, {occupancy, Studio}, infinity).
taken(Studio, Slot) -> ets:member(studios_store, {Studio, Slot}).
init([]) ->
    ets:new(studios_store, [named_table, protected, ordered_set]),
    {ok, #{journal => []}}.
handle_call({save, Studio, Slot}, _, S) ->
    ets:insert(studios_store, {{Studio, Slot}}),
    {reply, ok, journal({save, Studio, Slot}, S)};
handle_call({remove, Studio, Slot}, _, S) ->
    ets:delete(studios_store, {Studio, Slot}),
    {reply, ok, journal({remove, Studio, Slot}, S)};
handle_call({occupancy, Studio}, _, S) ->
    {reply, ets:select_count(studios_store, [{{{Studio, '_'}}, [], [true]}]), S}.
handle_cast(_, S) -> {noreply, S}.
journal(Entry, #{journal := J} = S) when length(J) >= 150 ->
    Kept = lists:usort([Entry | J]),
    ok = studios_events:tell({compacted, length(Kept)}),
    S#{journal := []};
journal(Entry, #{journal := J} = S) -> S#{journal := [Entry | J]}.
