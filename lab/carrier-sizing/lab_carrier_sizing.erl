%% A store of pictures, each a binary slightly larger than the maximum for multiblock carriers (sbct, 512 KB), so each has
%% a mapping of its own. Some are replaced all the time. Healthy: two flags let them share carriers.
-module(lab_carrier_sizing).

-export([start/1, establish/1]).

%% Every picture is replaced this often before the lab is ready, so that the carriers have reached their steady state.
-define(WARMUP_ROUNDS, 3).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Pictures = lab:int(Context, pictures, 160, 220),
    Kb = lab:int(Context, kb, 540, 640),
    PerS = lab:int(Context, replaced_per_s, 20, 60),
    Stores = lab:names(Context, stores, lab:int(Context, stores, 2, 4)),
    Held = lab:counter(),
    [
        lab:start(Store, fun() -> store(Pictures div length(Stores), Kb, PerS div length(Stores), Held) end)
     || Store <- Stores
    ],
    lab:wait_until(pictures, fun() -> lab:total(Held) >= ?WARMUP_ROUNDS * (Pictures div length(Stores)) * length(Stores) end),
    #{
        sick => none,
        details => #{
            stores => {list, Stores}, pictures => Pictures div length(Stores) * length(Stores), kb => Kb, replaced_per_s => PerS,
            allocated => maps:get(carriers, lab:allocated(binary_alloc))
        }
    }.

store(Pictures, Kb, PerS, Held) ->
    Table = ets:new(pictures, [private]),
    [
        begin
            ets:insert(Table, {Picture, picture(Kb, Held)}),
            true = erlang:garbage_collect()
        end
     || _ <- lists:seq(1, ?WARMUP_ROUNDS), Picture <- lists:seq(1, Pictures)
    ],
    lab:at_rate(PerS, fun(Due) ->
        [ets:insert(Table, {rand:uniform(Pictures), picture(Kb, Held)}) || _ <- lists:seq(1, Due)],
        %% Only the table may refer to a picture.
        true = erlang:garbage_collect()
    end).

picture(Kb, Held) ->
    lab:count(Held),
    lab:binary(Kb * 1024).
