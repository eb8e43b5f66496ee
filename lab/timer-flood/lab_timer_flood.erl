%% Gateways that start a timer for each request, in case there is no answer. The answer arrives immediately; when sick,
%% the timer keeps running for minutes. Healthy: it is cancelled after the answer.
-module(lab_timer_flood).

-export([start/1, establish/1]).

%% At this number the gateways stop: about 120 bytes each, 240 MB.
-define(MAX_TIMERS, 2000000).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Names = lab:names(Context, gateways, lab:int(Context, gateways, 4, 12)),
    PerS = lab:int(Context, requests_per_s, 2000, 4000),
    Past = lab:int(Context, past_requests, 250000, 400000),
    TimeoutS = lab:int(Context, timeout_s, 1200, 3600),
    Count = length(Names),
    Served = lab:counter(),
    Answers = lab:start(fun answer/0),
    Request = {Answers, TimeoutS * 1000, lab:sick(Context)},
    [lab:start(Name, fun() -> gateway(Request, Past div Count, PerS div Count, Served) end) || Name <- Names],
    lab:wait_until(past, fun() -> lab:total(Served) >= Past - Past div 10 end),
    #{
        sick => none,
        details => #{
            gateways => {list, Names}, requests_per_s => PerS, past_requests => Past, timeout_s => TimeoutS
        }
    }.

gateway(Request, Past, PerS, Served) ->
    requests(Request, Past, Served),
    lab:at_rate(PerS, fun(Due) ->
        case lab:total(Served) < ?MAX_TIMERS of
            true -> requests(Request, Due, Served);
            false -> ok
        end
    end).

requests(_, 0, _) ->
    ok;
requests({Answers, TimeoutMs, IsSick} = Request, Left, Served) ->
    Timer = erlang:start_timer(TimeoutMs, self(), request),
    Answers ! {self(), Timer},
    receive
        {answer, Timer} -> ok;
        {timeout, Timer, request} -> exit(no_answer)
    end,
    IsSick orelse erlang:cancel_timer(Timer),
    lab:count(Served),
    requests(Request, Left - 1, Served).

answer() ->
    receive
        {Gateway, Timer} -> Gateway ! {answer, Timer}
    end,
    answer().
