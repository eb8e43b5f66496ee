%% "Live revenue" for the board's dashboard: goes through all invoices again and again and sends
%% them in pages to the data warehouse. A transaction, so that the sums are those of one moment.
-module(billing_report).
-behaviour(gen_server).
-include("billing_db.hrl").
-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

start_link() -> gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

init([]) ->
    {ok, Interval} = application:get_env(billing, report_interval),
    erlang:send_after(Interval, self(), run),
    {ok, #{interval => Interval, last => none}}.

handle_call(last, _From, S = #{last := L}) -> {reply, L, S}.
handle_cast(_, S) -> {noreply, S}.

handle_info(run, S = #{interval := Interval}) ->
    {ok, Page} = application:get_env(billing, page),
    Sock = connect(),
    {Us, {atomic, Sum}} = timer:tc(fun() ->
        mnesia:transaction(fun() ->
            {Rest, _, Sum} = mnesia:foldl(
                fun(I, {Rows, N, Acc}) when N < Page -> {[row(I) | Rows], N + 1, add(I, Acc)};
                   (I, {Rows, _, Acc}) -> push(Sock, Rows), {[row(I)], 1, add(I, Acc)}
                end, {[], 0, #{}}, invoice),
            push(Sock, Rest),
            Sum
        end)
    end),
    gen_tcp:close(Sock),
    billing_stats:observe(report, Us),
    erlang:send_after(Interval, self(), run),
    {noreply, S#{last := Sum}}.

connect() ->
    Port = list_to_integer(os:getenv("WAREHOUSE_PORT")),
    {ok, Sock} = gen_tcp:connect({127,0,0,1}, Port, [binary, {packet, 4}, {active, false}]),
    Sock.

row(#invoice{id = Id, customer = C, cents = Cents, state = St}) ->
    [integer_to_binary(Id), $,, integer_to_binary(C), $,, integer_to_binary(Cents), $,, atom_to_binary(St), $\n].

add(#invoice{state = St, cents = C}, Acc) -> maps:update_with(St, fun(X) -> X + C end, C, Acc).

push(Sock, Rows) ->
    ok = gen_tcp:send(Sock, Rows),
    {ok, <<"ok">>} = gen_tcp:recv(Sock, 0, 30000).
