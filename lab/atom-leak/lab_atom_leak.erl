%% A process that creates an atom for each new value in its input. Healthy: the values stay binaries.
-module(lab_atom_leak).

-export([start/1, establish/1]).

%% The leak stops here: a VM whose atom table is full terminates with a crash dump.
-define(HOLD_PCT, 92).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Limit = erlang:system_info(atom_limit),
    FillPct = lab:int(Context, fill_pct, 40, 65),
    LeakPerS = lab:int(Context, leak_per_s, 60, 160),
    Prefix = lists:concat([
        lab:pick(Context, prefix, ["user-", "session:", "dev_", "t/", "req-"]), lab:int(Context, tenant, 100, 9999), "/"
    ]),
    Sick = lab:name(Context, reader),
    First = lab:int(Context, first, 1, 1 bsl 40),
    Fill = Limit * FillPct div 100,
    Hold = Limit * ?HOLD_PCT div 100,
    Pid = lab:start(Sick, fun() -> reader(lab:sick(Context), Prefix, First, Fill, LeakPerS, Hold) end),
    case lab:sick(Context) of
        true -> lab:wait_until(filled, fun() -> erlang:system_info(atom_count) >= Fill end);
        false -> lab:pause(1000)
    end,
    #{
        %% Which process creates the atoms cannot be determined from outside; the prefix tells the developer what they
        %% are.
        sick => lab:culprit(Context, list_to_atom(Prefix)),
        details => #{pid => Pid, reader => Sick, prefix => Prefix, leak_per_s => LeakPerS, fill_pct => FillPct, limit => Limit}
    }.

reader(Sick, Prefix, First, Fill, LeakPerS, Hold) ->
    Seen = lab:counter(),
    Read = fun(Count) ->
        [
            begin
                lab:count(Seen),
                seen(Sick, list_to_binary([Prefix, integer_to_list(First + lab:total(Seen), 36)]))
            end
         || _ <- lists:seq(1, Count)
        ]
    end,
    Sick andalso Read(max(0, Fill - erlang:system_info(atom_count))),
    lab:at_rate(LeakPerS, fun(Due) ->
        Read(case Sick of true -> max(0, min(Due, Hold - erlang:system_info(atom_count))); false -> Due end)
    end).

seen(true, Value) -> binary_to_atom(Value, utf8);
seen(false, Value) -> Value.
