-module(scooters_billing).
-behaviour(gen_server).
-export([start_link/0, ride/2, sum/0, init/1, handle_call/3, handle_cast/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
ride(Scooter, Metres) -> gen_server:cast(?MODULE, {ride, Scooter, Metres}).
sum() -> gen_server:call(?MODULE, sum).

init([]) -> {ok, {0, 0}}.
handle_call(sum, _, S) -> {reply, S, S}.
handle_cast({ride, _, Metres}, {N, Cents}) -> {noreply, {N + 1, Cents + 100 + Metres div 10}}.
