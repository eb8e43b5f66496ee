-module(dialer_billing).
-behaviour(gen_server).
-export([start_link/0, begun/1, ended/2, init/1, handle_call/3, handle_cast/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
begun(Id) -> gen_server:cast(?MODULE, {begun, Id, erlang:system_time(millisecond)}).
ended(Id, Frames) -> gen_server:cast(?MODULE, {ended, Id, Frames}).
init([]) -> {ok, {#{}, []}}.
handle_call(open, _, {M, _} = S) -> {reply, map_size(M), S}.
handle_cast({begun, Id, At}, {M, L}) -> {noreply, {M#{Id => At}, L}};
handle_cast({ended, Id, F}, {M, L}) ->
    case maps:take(Id, M) of
        {At, M2} -> {noreply, {M2, lists:sublist([{Id, At, F} | L], 200)}};
        error -> {noreply, {M, L}}
    end.
