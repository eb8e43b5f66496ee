%% Processes that open sockets. One never closes them; one keeps a constant number open; the others open and close.
-module(lab_port_leak).

-export([start/1, establish/1]).

%% The leak stops here: the node stays near its limit, but alive.
-define(HOLD_PCT, 95).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    FillPct = lab:int(Context, fill_pct, 35, 60),
    LeakPerS = lab:int(Context, leak_per_s, 5, 12),
    ChurnPerS = lab:int(Context, churn_per_s, 20, 60),
    Held = lab:int(Context, held, 80, 200),
    Limit = erlang:system_info(port_limit),
    Fill = Limit * FillPct div 100,
    [Sick, Holder | Others] = Names = lab:names(Context, owners, lab:int(Context, owners, 4, 7)),
    Pid = lab:start(Sick, fun() -> leak(lab:sick(Context), Fill, LeakPerS, Limit * ?HOLD_PCT div 100) end),
    lab:start(Holder, fun() ->
        Sockets = open(Held),
        receive never -> Sockets end
    end),
    [lab:start(Other, fun() -> lab:at_rate(ChurnPerS, fun open_and_close/1) end) || Other <- Others],
    case lab:sick(Context) of
        true -> lab:wait_until(filled, fun() -> erlang:system_info(port_count) > Fill end);
        false -> lab:pause(1000)
    end,
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => Pid, owners => {list, lab:shuffle(Context, order, Names)}, holder => Holder, held => Held,
            leak_per_s => LeakPerS, fill_pct => FillPct, limit => Limit
        }
    }.

leak(true, Fill, LeakPerS, Hold) ->
    open(Fill),
    lab:at_rate(LeakPerS, fun(Due) -> open(max(0, min(Due, Hold - erlang:system_info(port_count)))) end);
leak(false, _, LeakPerS, _) ->
    lab:at_rate(LeakPerS, fun open_and_close/1).

open_and_close(Count) -> [ok = gen_udp:close(Socket) || Socket <- open(Count)].

open(Count) ->
    [
        begin
            {ok, Socket} = gen_udp:open(0, [{ip, {127, 0, 0, 1}}]),
            Socket
        end
     || _ <- lists:seq(1, Count)
    ].
