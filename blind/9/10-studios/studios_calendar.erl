%% Gives out the slots.
-module(studios_calendar).
-behaviour(gen_server).
-export([start_link/0, book/2, cancel/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
book(Studio, Slot) -> gen_server:call(?MODULE, {book, Studio, Slot}, infinity).
cancel(Studio, Slot) -> gen_server:call(?MODULE, {cancel, Studio, Slot}, infinity).
init([]) -> {ok, #{booked => 0}}.
handle_call({book, Studio, Slot}, From, S = #{booked := N}) ->
    case studios_store:taken(Studio, Slot) of
        true -> {reply, taken, S};
        false ->
            ok = studios_store:save(Studio, Slot),
            %% the others are told of it by a process of its own
            spawn(fun() ->
                ok = studios_events:tell({booked, Studio, Slot}),
                gen_server:reply(From, {booked, studios_prices:price(Studio)})
            end),
            {noreply, S#{booked := N + 1}}
    end;
handle_call({cancel, Studio, Slot}, _, S) ->
    ok = studios_store:remove(Studio, Slot),
    {reply, cancelled, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(_, S) -> {noreply, S}.
