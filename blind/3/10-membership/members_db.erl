-module(members_db).
-export([open/0, enter/2, visits/1]).
-record(member, {id, name, points = 0}).
-record(visit, {id, member, at}).
open() ->
    case os:getenv("PARTNER") of
        false ->
            {atomic, ok} = mnesia:create_table(member, [{ram_copies, [node()]}, {attributes, record_info(fields, member)}]),
            {atomic, ok} = mnesia:create_table(visit, [{ram_copies, [node()]}, {attributes, record_info(fields, visit)}, {index, [member]}]),
            [mnesia:dirty_write(#member{id = I, name = "Member " ++ integer_to_list(I)}) || I <- lists:seq(1, 3000)],
            ok;
        P ->
            Partner = list_to_atom(P),
            {ok, [_]} = mnesia:change_config(extra_db_nodes, [Partner]),
            [{atomic, ok} = mnesia:add_table_copy(T, node(), ram_copies) || T <- [member, visit]],
            ok
    end.
enter(Id, Door) ->
    mnesia:transaction(fun() ->
        [M] = mnesia:read(member, Id, write),
        mnesia:write(M#member{points = M#member.points + 1}),
        mnesia:write(#visit{id = {node(), Door, erlang:unique_integer([positive, monotonic])}, member = Id, at = erlang:system_time(second)})
    end).
visits(Id) -> mnesia:dirty_index_read(visit, Id, #visit.member).
