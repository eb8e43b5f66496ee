-module(thermostats_udp).
-behaviour(gen_server).
-export([start_link/0, init/1, handle_call/3, handle_cast/2, handle_info/2]).
-define(DATAGRAM, 512).   % no reading is longer
start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).
init([]) ->
    {ok, S} = gen_udp:open(0, [binary, {active, once}, {ip, {127, 0, 0, 1}}, {recbuf, ?DATAGRAM * 4}]),
    {ok, Port} = inet:port(S),
    ok = file:write_file(os:getenv("PORT_FILE"), integer_to_list(Port)),
    {ok, #{socket => S, got => 0}}.
handle_call(got, _, #{got := G} = St) -> {reply, G, St}.
handle_cast(_, St) -> {noreply, St}.
handle_info({udp, S, _Ip, _Port, Data}, #{got := G} = St) ->
    [Id, Temp, Want | _] = binary:split(Data, <<";">>, [global]),
    thermostats_rooms:reading(Id, binary_to_float(Temp), binary_to_float(Want)),
    ok = inet:setopts(S, [{active, once}]),
    {noreply, St#{got := G + 1}}.
