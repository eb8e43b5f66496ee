%% Writes the events of the parcels to the store, one after the other, and knows the last one.
-module(parcel_events).
-behaviour(gen_server).
-export([start_link/0, save/2, last/1, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

save(Parcel, Event) -> gen_server:cast(?MODULE, {save, Parcel, Event}).

last(Parcel) ->
    try gen_server:call(?MODULE, {last, Parcel}, 1500)
    catch exit:{timeout, _} -> <<"unknown">>
    end.

init([]) ->
    {ok, S} = gen_tcp:connect({127, 0, 0, 1}, list_to_integer(os:getenv("STORE_PORT")), [binary, {packet, line}, {active, true}, {nodelay, true}]),
    {ok, #{socket => S, last => #{}}}.

handle_call({last, Parcel}, _, #{last := L} = S) -> {reply, maps:get(Parcel, L, <<"none">>), S}.

handle_cast({save, Parcel, Event}, #{socket := Socket, last := L} = S) ->
    ok = gen_tcp:send(Socket, [Parcel, $ , Event, $\n]),
    receive
        {tcp, Socket, <<"ok", _/binary>>} -> ok;
        {tcp_closed, Socket} -> exit(closed)
    end,
    {noreply, S#{last := L#{Parcel => Event}}}.
