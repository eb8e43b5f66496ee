%% Processes that open files. One never closes them; one keeps a constant number open; the others open and close. Such
%% files have a descriptor each, and no port.
-module(lab_descriptor_leak).

-export([start/1, establish/1]).

%% The leak stops here: the node stays near its limit, but alive.
-define(HOLD_PCT, 93).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Limit = lab:int(Context, limit, 1024, 1024),
    FillPct = lab:int(Context, fill_pct, 84, 88),
    LeakPerS = lab:int(Context, leak_per_s, 1, 3),
    ChurnPerS = lab:int(Context, churn_per_s, 10, 30),
    Held = lab:int(Context, held, 40, 90),
    Fill = Limit * FillPct div 100 - Held,
    [Sick, Holder | Others] = Names = lab:names(Context, owners, lab:int(Context, owners, 4, 7)),
    Opened = lab:counter(),
    Pid = lab:start(Sick, fun() -> leak(lab:sick(Context), Fill, LeakPerS, Limit * ?HOLD_PCT div 100 - Held, Opened) end),
    lab:start(Holder, fun() ->
        Files = open(Held),
        receive never -> Files end
    end),
    [lab:start(Other, fun() -> lab:at_rate(ChurnPerS, fun open_and_close/1) end) || Other <- Others],
    lab:wait_until(filled, fun() -> lab:total(Opened) > 0 end),
    #{
        sick => none,
        details => #{
            pid => Pid, culprit => Sick, owners => {list, lab:shuffle(Context, order, Names)}, holder => Holder, held => Held,
            leak_per_s => LeakPerS, fill_pct => FillPct, limit => Limit
        }
    }.

leak(true, Fill, LeakPerS, Hold, Opened) ->
    Files = open(Fill),
    lab:count(Opened),
    leak(Files, Fill, LeakPerS, Hold);
leak(false, _, LeakPerS, _, Opened) ->
    lab:count(Opened),
    lab:at_rate(LeakPerS, fun open_and_close/1).

leak(Files, Count, LeakPerS, Hold) ->
    lab:pause(1000 div LeakPerS),
    case Count < Hold of
        true -> leak(open(1) ++ Files, Count + 1, LeakPerS, Hold);
        false -> leak(Files, Count, LeakPerS, Hold)
    end.

open_and_close(Count) -> [ok = file:close(File) || File <- open(Count)].

open(Count) ->
    [
        begin
            {ok, File} = file:open("/dev/null", [read, raw]),
            File
        end
     || _ <- lists:seq(1, Count)
    ].
