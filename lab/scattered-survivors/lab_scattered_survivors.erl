%% A spike of binaries of which a few survive: they are scattered over all carriers of binary_alloc, so none of these
%% becomes empty. Healthy: the few are copied when the spike is over; the copies are close together, and the carriers are
%% freed.
-module(lab_scattered_survivors).

-export([start/1, establish/1]).

-define(MB, (1024 * 1024)).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    SpikeMb = lab:int(Context, spike_mb, 350, 500),
    KeepEvery = lab:int(Context, keep_every, 50, 120),
    Smallest = lab:int(Context, smallest, 200, 600),
    Largest = lab:int(Context, largest, 1500, 4000),
    PerS = lab:int(Context, per_s, 100, 400),
    [KeeperName | Others] = Names = lab:names(Context, processes, lab:int(Context, processes, 4, 7)),
    Keeper = lab:start(KeeperName, fun() -> keep([]) end),
    Size = fun() -> Smallest + rand:uniform(Largest - Smallest) end,
    Producers = 2 * erlang:system_info(schedulers_online),
    Each = SpikeMb * ?MB div Producers,
    Made = lab:counter(),
    Started = [lab:start(fun() -> produce(Keeper, Size, KeepEvery, Each, Made) end) || _ <- lists:seq(1, Producers)],
    %% All binaries of the spike are alive at once.
    lab:wait_until(spike, fun() -> lab:total(Made) =:= Producers end),
    [Producer ! done || Producer <- Started],
    lab:wait_until(spike_over, fun() -> erlang:memory(binary) < (2 * SpikeMb div KeepEvery + 10) * ?MB end),
    Keeper ! {settle, lab:sick(Context), self()},
    {Kept, KeptBytes} = receive {settled, N, Bytes} -> {N, Bytes} end,
    [lab:start(Other, fun() -> requests(Size, PerS) end) || Other <- Others],
    #{carriers := Carriers} = allocated(lab:sick(Context), SpikeMb),
    #{
        sick => none,
        details => #{
            pid => Keeper, keeper => KeeperName, processes => {list, lab:shuffle(Context, order, Names)},
            spike_mb => SpikeMb, keep_every => KeepEvery, smallest => Smallest, largest => Largest,
            per_s => PerS, kept => Kept, kept_bytes => KeptBytes, carriers_mb => Carriers div ?MB
        }
    }.

%% When sick, most of the memory of the spike must still be there; when healthy, it is freed gradually.
allocated(Sick, SpikeMb) ->
    Small = fun() -> #{carriers := Carriers} = lab:allocated(binary_alloc), Carriers < SpikeMb * ?MB div 4 end,
    case Sick of
        true -> lab:wait_until(carriers_stay, fun() -> not Small() end);
        false -> lab:wait_until(carriers_returned, Small)
    end,
    lab:allocated(binary_alloc).

produce(Keeper, Size, KeepEvery, Bytes, Made) ->
    Spike = produce(Keeper, Size, KeepEvery, Bytes, 1, []),
    lab:count(Made),
    receive done -> length(Spike) end.

produce(_, _, _, Left, _, Spike) when Left =< 0 ->
    Spike;
produce(Keeper, Size, KeepEvery, Left, N, Spike) ->
    Bytes = Size(),
    Binary = lab:binary(Bytes),
    N rem KeepEvery =:= 0 andalso (Keeper ! {keep, Binary}),
    produce(Keeper, Size, KeepEvery, Left - Bytes, N + 1, [Binary | Spike]).

keep(Kept) ->
    receive
        {keep, Binary} ->
            keep([Binary | Kept]);
        {settle, Sick, From} ->
            Settled = case Sick of true -> Kept; false -> [binary:copy(Binary) || Binary <- Kept] end,
            From ! {settled, length(Settled), iolist_size(Settled)},
            kept(Settled)
    end.

%% A function of its own, so that nothing refers to the originals any more.
kept(Kept) ->
    true = erlang:garbage_collect(),
    receive never -> Kept end.

%% Traffic after the spike, of the same kind, but nothing of it is kept.
requests(Size, PerS) ->
    lab:at_rate(PerS, fun(Due) ->
        Due = length([lab:binary(Size()) || _ <- lists:seq(1, Due)])
    end).
