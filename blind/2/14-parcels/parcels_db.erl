-module(parcels_db).
-export([create/0, scan/2, with_status/1, find/1, next/1]).
-record(parcel, {id, status, zip, depot, at}).

create() ->
    {atomic, ok} = mnesia:create_table(parcel, [{ram_copies, [node()]}, {attributes, record_info(fields, parcel)}, {index, [depot]}]),
    %% which parcels are in which state (an index on status was too slow to read)
    {atomic, ok} = mnesia:create_table(parcel_state, [{ram_copies, [node()]}, {type, bag}, {attributes, [status, id]}]),
    {atomic, ok} = mnesia:create_table(depot, [{ram_copies, [node()]}, {attributes, [id, name]}]),
    [ok = mnesia:dirty_write({depot, I, "depot"}) || I <- lists:seq(1, 900)],
    %% the parcels of the last days: nearly all of them have arrived
    N = 50000,
    [begin
         St = if I rem 50 =:= 0 -> in_transit; I rem 50 =:= 1 -> out; true -> delivered end,
         ok = mnesia:dirty_write(#parcel{id = I, status = St, zip = I rem 99999, depot = I rem 900, at = 0}),
         ok = mnesia:dirty_write({parcel_state, St, I})
     end || I <- lists:seq(1, N)],
    persistent_term:put(parcels_last, counters:new(1, [])),
    counters:put(persistent_term:get(parcels_last), 1, N),
    ok.

next(Zip) ->
    Ref = persistent_term:get(parcels_last),
    counters:add(Ref, 1, 1),
    Id = counters:get(Ref, 1),
    F = fun() -> mnesia:write(#parcel{id = Id, status = in_transit, zip = Zip, depot = Id rem 900, at = erlang:system_time(second)}) end,
    {atomic, ok} = mnesia:transaction(F),
    mnesia:dirty_write({parcel_state, in_transit, Id}),
    %% as many as come in go out of the books
    case mnesia:dirty_read(parcel, Id - 50000) of
        [#parcel{id = Old, status = St}] ->
            mnesia:dirty_delete({parcel, Old}),
            mnesia:dirty_delete_object({parcel_state, St, Old});
        [] -> ok
    end,
    Id.

scan(Id, Status) ->
    F = fun() ->
            case mnesia:wread({parcel, Id}) of
                [#parcel{status = Was} = P] -> mnesia:write(P#parcel{status = Status, at = erlang:system_time(second)}), Was;
                [] -> Status
            end
        end,
    {atomic, Was} = mnesia:transaction(F),
    if Was =/= Status ->
           mnesia:dirty_delete_object({parcel_state, Was, Id}),
           mnesia:dirty_write({parcel_state, Status, Id});
       true -> ok
    end.

with_status(S) -> mnesia:dirty_read(parcel_state, S).
find(Id) -> mnesia:dirty_read(parcel, Id).
