%% Workers of one supervisor fetch records and decode them. One gets a record that it cannot decode, and crashes each
%% time; its supervisor's intensity is high enough to restart it forever. Healthy: it skips the record.
-module(lab_crash_loop).
-behaviour(supervisor).

-export([start/1, establish/1, init/1, worker/3]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    [Supervisor | Names] = lab:names(Context, worker, lab:int(Context, workers, 4, 8) + 1),
    Which = lab:pick(Context, which, Names),
    EveryMs = lab:int(Context, every_ms, 100, 300),
    Decoded = lab:counter(),
    IsBroken = fun(Name) -> lab:sick(Context) andalso Name =:= Which end,
    {ok, _} = supervisor:start_link({local, Supervisor}, ?MODULE, [{Name, [{Decoded, EveryMs}, Name, IsBroken(Name)]} || Name <- Names]),
    lab:wait_until(decoded, fun() -> lab:total(Decoded) > 20 * length(Names) end),
    #{
        sick => lab:culprit(Context, [Which, Supervisor]),
        details => #{supervisor => Supervisor, workers => {list, Names}, worker => Which, every_ms => EveryMs}
    }.

init(Workers) ->
    {ok, {#{strategy => one_for_one, intensity => 1000, period => 1},
          [#{id => Name, start => {?MODULE, worker, Args}} || {Name, Args} <- Workers]}}.

worker(Load, Name, IsBroken) ->
    proc_lib:start_link(erlang, apply, [fun() ->
        true = register(Name, self()),
        proc_lib:init_ack({ok, self()}),
        work(Load, IsBroken)
    end, []]).

work({Decoded, EveryMs} = Load, IsBroken) ->
    lab:pause(EveryMs),
    lab:count(Decoded),
    {ok, _} = decode(IsBroken),
    work(Load, IsBroken).

decode(true) -> {error, unknown_version};
decode(false) -> {ok, record}.
