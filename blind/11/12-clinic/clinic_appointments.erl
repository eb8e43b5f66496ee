-module(clinic_appointments).
-behaviour(gen_server).
-export([start_link/0, next/1, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

next(Patient) ->
    case ets:lookup(?MODULE, Patient) of
        [{_, Day, Doctor}] -> {Day, Doctor};
        [] -> none
    end.

init([]) ->
    T = ets:new(?MODULE, [named_table, protected, {read_concurrency, true}]),
    ets:insert(T, [{<<"p", (integer_to_binary(P))/binary>>, P rem 90, P rem 14} || P <- lists:seq(0, 19999)]),
    {ok, T}.

handle_call(_, _, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
