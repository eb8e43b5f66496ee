%% one locker (or courier's handheld). Line protocol.
-module(parcels_locker).
-behaviour(gen_server).
-export([start_link/1, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link(S) -> gen_server:start_link(?MODULE, S, []).
init(S) -> {ok, #{socket => S, id => undefined, n => 0}}.
handle_call(_, _, St) -> {reply, ok, St}.
handle_cast(_, St) -> {noreply, St}.
handle_info(go, #{socket := S} = St) -> ok = inet:setopts(S, [{active, once}]), {noreply, St};
handle_info({tcp, S, Line}, #{n := N} = St) ->
    ok = inet:setopts(S, [{active, once}]),
    Answer = case binary:split(string:trim(Line), <<" ">>, [global]) of
        [<<"hello">>, Id] -> parcels_report:seen(Id), <<"welcome ", Id/binary>>;
        [<<"put">>, Box, Parcel] -> parcels_store:put(Parcel, Box), <<"ok">>;
        [<<"where">>, Parcel] -> parcels_store:where(Parcel);
        _ -> <<"what?">>
    end,
    ok = gen_tcp:send(S, [Answer, $\n]),
    {noreply, St#{n := N + 1}};
handle_info({tcp_closed, _}, St) -> {stop, normal, St};
handle_info({tcp_error, _, _}, St) -> {stop, normal, St}.
