%% More long calls than dirty CPU schedulers: each request generates an RSA key, one call of many milliseconds that cannot
%% be preempted. The calls queue, and with them all large GCs. Healthy: a key is generated now and then, and used for many
%% requests.
-module(lab_dirty_cpu_saturated).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    {module, crypto} = code:ensure_loaded(crypto),
    {ok, _} = application:ensure_all_started(crypto),
    Bits = lab:pick(Context, bits, [1024, 1536, 2048]),
    Names = lab:names(Context, makers, lab:int(Context, makers, 5, 9)),
    EveryMs = lab:int(Context, every_ms, 8000, 12000),
    Made = lab:counter(),
    Pause = case lab:sick(Context) of true -> 0; false -> EveryMs end,
    [lab:start(Name, fun() -> maker(Bits, Pause, Made) end) || Name <- Names],
    lab:wait_until(keys_are_made, fun() -> lab:total(Made) >= 2 * length(Names) orelse not lab:sick(Context) end),
    #{sick => none, details => #{makers => {list, Names}, bits => Bits}}.

maker(Bits, Pause, Made) ->
    lab:pause(case Pause of 0 -> 0; _ -> rand:uniform(Pause) end),
    {_Public, _Private} = crypto:generate_key(rsa, {Bits, 65537}),
    lab:count(Made),
    maker(Bits, Pause, Made).
