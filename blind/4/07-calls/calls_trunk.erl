%% Takes the invitations (a datagram each) from the gateways.
-module(calls_trunk).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    {ok, U} = gen_udp:open(0, [binary, {active, 100}, {ip, {127, 0, 0, 1}}, {recbuf, 1000000}]),
    {ok, Port} = inet:port(U),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    {ok, #{sock => U, n => 0, slow => 0}}.
handle_call(state, _, S) -> {reply, S, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info({udp, _, _, _, D}, #{n := N, slow := Slow} = S) ->
    [<<"INVITE ", To/binary>> | Headers] = binary:split(D, <<"\r\n">>, [global]),
    H = [list_to_tuple([unicode:characters_to_list(P) || P <- binary:split(L, <<": ">>)]) || L <- Headers, L =/= <<>>],
    T = erlang:monotonic_time(microsecond),
    {ok, _} = calls_sup:new(N, #{to => binary_to_integer(To), headers => H}),
    {noreply, S#{n := N + 1, slow := max(Slow, erlang:monotonic_time(microsecond) - T)}};
handle_info({udp_passive, U}, S) -> inet:setopts(U, [{active, 100}]), {noreply, S}.
