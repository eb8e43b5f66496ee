%% What happens in the studios: {booked, Studio, Slot}, {cancelled, Studio, Slot}, {compacted, N}
-module(studios_events).
-export([start_link/0, tell/1]).
start_link() ->
    {ok, Pid} = gen_event:start_link({local, ?MODULE}),
    ok = gen_event:add_handler(?MODULE, studios_stats_h, []),
    ok = gen_event:add_handler(?MODULE, studios_prices_h, []),
    {ok, Pid}.
%% synchronous, so that nobody sees an old price after his booking
tell(Event) -> gen_event:sync_notify(?MODULE, Event).
