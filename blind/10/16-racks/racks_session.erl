%% The management session of one machine.
-module(racks_session).
-behaviour(gen_server).
-export([start_link/1, read/2, init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link(Host) -> gen_server:start_link(?MODULE, Host, []).
read(Pid, Sensor) -> gen_server:call(Pid, {read, Sensor}).

init(Host) ->
    erlang:send_after(rand:uniform(10000), self(), poll),
    {ok, #{host => Host, <<"power">> => 300, <<"temp">> => 40, <<"fan">> => 5000}}.

handle_call(host, _, #{host := H} = S) -> {reply, H, S};
handle_call({read, Sensor}, _, S) -> {reply, maps:get(Sensor, S, none), S}.

handle_cast(_, S) -> {noreply, S}.

handle_info(poll, #{host := H} = S) ->
    erlang:send_after(10000, self(), poll),
    T = 30 + rand:uniform(40),
    T > 68 andalso racks_alarms:raise(H, T),
    {noreply, S#{<<"power">> := 200 + rand:uniform(200), <<"temp">> := T, <<"fan">> := 3000 + rand:uniform(4000)}}.
