%% Datagrams <<Station:16, N:32, V:16/signed>>, a hundred at a time.
-module(seismics_receiver).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    {ok, U} = gen_udp:open(0, [binary, {ip, {127, 0, 0, 1}}, {active, 100}, {recbuf, 1048576}]),
    {ok, P} = inet:port(U),
    ok = file:write_file(os:getenv("UDP_FILE"), integer_to_list(P)),
    {ok, #{received => 0}}.
handle_call(received, _, #{received := N} = S) -> {reply, N, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info({udp, _, _, _, <<I:16, N:32, V:16/signed>>}, #{received := R} = S) ->
    seismics_station:sample(I, N, V),
    {noreply, S#{received := R + 1}};
handle_info({udp_passive, U}, S) ->
    ok = inet:setopts(U, [{active, 100}]),
    {noreply, S}.
