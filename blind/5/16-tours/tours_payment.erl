%% the customers pay at a provider's site, which calls back with the result
-module(tours_payment).
-behaviour(gen_server).
-export([start_link/0, open/2, callback/2]).
-export([init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
open(Booking, Price) -> gen_server:call(?MODULE, {open, Booking, Price}).
callback(Ref, Result) -> gen_server:call(?MODULE, {callback, Ref, Result}).
init([]) ->
    tours_open = ets:new(tours_open, [named_table, protected]),
    {ok, 1}.
handle_call({open, Booking, Price}, _, N) ->
    ets:insert(tours_open, {N, Booking, Price}),
    {reply, N, N + 1};
handle_call({callback, Ref, Result}, _, N) ->
    case ets:take(tours_open, Ref) of
        [{_, Booking, _}] -> tours_booking:payment(Booking, Result), {reply, ok, N};
        [] -> {reply, unknown, N}
    end.
handle_cast(_, S) -> {noreply, S}.
