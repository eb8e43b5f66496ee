%% Handlers that spawn a process per request. The processes of one handler never exit, because they wait without a
%% time-out for an answer that does not come; those of the others exit soon.
-module(lab_process_leak).

-export([start/1, establish/1]).

%% The leak stops here: the node stays near its limit, but alive.
-define(HOLD_PCT, 95).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    FillPct = lab:int(Context, fill_pct, 35, 60),
    LeakPerS = lab:int(Context, leak_per_s, 50, 130),
    ChurnPerS = lab:int(Context, churn_per_s, 60, 200),
    Names = lab:names(Context, handlers, lab:int(Context, handlers, 3, 6)),
    Sick = lab:pick(Context, which, Names),
    Fill = erlang:system_info(process_limit) * FillPct div 100,
    Pids = [
        {Name, lab:start(Name, fun() -> handler(Context, Name =:= Sick, Fill, LeakPerS, ChurnPerS) end)}
     || Name <- Names
    ],
    case lab:sick(Context) of
        true -> lab:wait_until(filled, fun() -> erlang:system_info(process_count) > Fill end);
        false -> lab:pause(1000)
    end,
    #{
        sick => lab:culprit(Context, Sick),
        details => #{
            pid => proplists:get_value(Sick, Pids), handlers => {list, Names}, leak_per_s => LeakPerS,
            fill_pct => FillPct, limit => erlang:system_info(process_limit)
        }
    }.

handler(Context, true, Fill, LeakPerS, _) ->
    case lab:sick(Context) of
        true ->
            requests(Fill, infinity),
            lab:at_rate(LeakPerS, fun(Due) ->
                Room = erlang:system_info(process_limit) * ?HOLD_PCT div 100 - erlang:system_info(process_count),
                requests(max(0, min(Due, Room)), infinity)
            end);
        false ->
            lab:at_rate(LeakPerS, fun(Due) -> requests(Due, 100) end)
    end;
handler(_, false, _, _, ChurnPerS) ->
    lab:at_rate(ChurnPerS, fun(Due) -> requests(Due, 100) end).

requests(Count, TimeoutMs) ->
    [proc_lib:spawn(fun() -> request(TimeoutMs) end) || _ <- lists:seq(1, Count)].

request(TimeoutMs) ->
    receive {answer, _} -> ok
    after TimeoutMs -> ok
    end.
