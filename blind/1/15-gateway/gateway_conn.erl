%% A connection: a request has a batch of call records, the answer has their prices.
-module(gateway_conn).
-behaviour(gen_server).
-export([start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link(S) -> gen_server:start_link(?MODULE, [S], []).
init([S]) -> {ok, S}.
handle_call(_, _From, S) -> {reply, ok, S}.
handle_cast(_, S) -> {noreply, S}.
handle_info(ready, S) -> inet:setopts(S, [{active, 16}]), {noreply, S};
handle_info({tcp, S, Req}, S) ->
    {Us, Resp} = timer:tc(fun() -> rate(Req) end),
    ok = gen_tcp:send(S, Resp),
    gateway_stats:observe(Us),
    {noreply, S};
handle_info({tcp_passive, S}, S) -> inet:setopts(S, [{active, 16}]), {noreply, S};
handle_info({tcp_closed, S}, S) -> {stop, normal, S}.

rate(Req) ->
    Records = [binary:split(R, <<",">>, [global]) || R <- binary:split(Req, <<"\n">>, [global, trim_all])],
    Prices = [price(R) || R <- Records],
    Total = lists:sum(Prices),
    iolist_to_binary([[integer_to_binary(P), $,] || P <- Prices] ++ [$=, integer_to_binary(Total)]).

price([_Caller, Number, Seconds, _Time]) ->
    {Setup, PerMin} = gateway_tariff:lookup(Number),
    Setup + (binary_to_integer(Seconds) * PerMin + 59) div 60.
