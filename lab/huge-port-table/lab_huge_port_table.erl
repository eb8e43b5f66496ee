%% A port table for millions of files, as with "unlimited" for ulimit -n; here a flag has the same effect. The node itself
%% is mostly idle.
-module(lab_huge_port_table).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Sockets = lab:int(Context, sockets, 10, 60),
    Owner = lab:name(Context, owner),
    Opened = lab:counter(),
    lab:start(Owner, fun() ->
        Open = [{ok, _} = gen_udp:open(0, [{ip, {127, 0, 0, 1}}]) || _ <- lists:seq(1, Sockets)],
        lab:count(Opened),
        receive never -> Open end
    end),
    lab:wait_until(opened, fun() -> lab:total(Opened) =:= 1 end),
    #{
        sick => none,
        details => #{owner => Owner, sockets => Sockets, limit => erlang:system_info(port_limit)}
    }.
