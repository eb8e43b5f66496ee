%% The table, process or port of a single lock in an answer of `locks'.

%% Adds to the counts the entity of each single lock, within the time limit.
named_locks(#{told := ok, rows := Rows, duration_us := Us, mask := Mask, categories := Categories} = Counted, Ms, State) ->
    Things = lists:usort([Thing || {Class, Kind, Id, _, _} <- Rows, Thing <- [thing(Class, Kind, Id)], Thing =/= none]),
    Tables = tables_named([Name || {table, Name} <- Things], State),
    Features = State#state.features,
    Known = maps:from_list(details(fun(Thing) -> belongs(Thing, Tables, Features) end, Things, State#state{deadline_ns = now_ns()})),
    Named = [{Class, Kind, lock_id(Id), maps:get(entity, maps:get(thing(Class, Kind, Id), Known, #{}), undefined), Locks, Places}
            || {Class, Kind, Id, Locks, Places} <- Rows],
    %% Another user of lock counting has changed the mask, or reset the counters.
    Disturbed = Mask =/= Categories orelse Us < Ms * 980,
    {(maps:without([mask], Counted))#{rows => Named, disturbed => Disturbed}, State};
named_locks(Counted, _, State) -> {Counted, State}.

lock_id(Id) when is_integer(Id) -> integer_to_binary(Id);
lock_id(Id) when is_pid(Id); is_port(Id); is_reference(Id); is_atom(Id) -> id(Id);
lock_id(Id) -> text(Id).

thing(_, _, Id) when is_pid(Id) -> {process, Id};
thing(_, _, Id) when is_port(Id) -> {port, Id};
thing(_, Kind, Id) when is_atom(Id), Kind =:= <<"proclock">> -> {registered, Id};
thing(Class, _, Id) when is_atom(Id) ->
    case lists:member(Class, [<<"db_tab">>, <<"db_tab_fix">>, <<"db_hash_slot">>, <<"erl_db_catree_base_node">>,
                              <<"erl_db_catree_route_node">>]) of
        true -> {table, Id};
        false -> none
    end;
thing(_, _, _) -> none.

%% #{Name => {number of tables with that name, one of them}}. If there are very many tables, only named tables are found.
tables_named([], _) -> #{};
tables_named(Names, State) ->
    Wanted = maps:from_list([{Name, {0, none}} || Name <- Names]),
    case erlang:system_info(ets_count) of
        Count when Count > ?MAX_LIST -> maps:from_list([{Name, {1, Name}} || Name <- Names, ets:info(Name, owner) =/= undefined]);
        _ -> tables_named(ets:all(), Wanted, State)
    end.

tables_named([], Found, _) -> Found;
tables_named(Tables, Found, State) ->
    {Some, _, Rest} = take(?CHUNK, Tables, Tables),
    Add = fun(Table, Name, All) ->
              case All of
                  #{Name := {Count, _}} -> All#{Name := {Count + 1, Table}};
                  _ -> All
              end
          end,
    Names = read_all(fun(Table, _) -> ets:info(Table, name) end, Some),
    tables_named(Rest, add_all(Some, Names, Add, Found), rest(State)).

%% In the reader: #{entity => Bin}, or `undefined'.
belongs({process, Pid}, _, Features) -> entity(called(identity(Pid, Features)));
belongs({registered, Name}, _, Features) ->
    case whereis(Name) of
        Pid when is_pid(Pid) ->
            case identity(Pid, Features) of
                #{} = Identity -> entity(called(maps:remove(name, Identity)));
                undefined -> undefined
            end;
        _ -> undefined
    end;
belongs({port, Port}, _, Features) ->
    case {erlang:port_info(Port, name), erlang:port_info(Port, connected)} of
        {{_, Name}, {_, Owner}} -> entity(of_owner(kind(Name), Owner, Features));
        _ -> undefined
    end;
belongs({table, Name}, Tables, Features) ->
    case Tables of
        #{Name := {1, Table}} ->
            case ets:info(Table, owner) of
                Owner when is_pid(Owner) -> entity(of_owner(bin(Name), Owner, Features));
                undefined -> undefined
            end;
        #{Name := {Count, _}} when Count > 1 -> entity(<<"one of ", (integer_to_binary(Count))/binary, " tables">>);
        _ -> undefined
    end.

entity(Text) when Text =:= <<>> -> undefined;
entity(Text) -> #{entity => cut(Text, ?TEXT_BYTES)}.

%% A process's name, label or initial call.
called(#{name := Name}) -> Name;
called(#{label := Label}) -> Label;
called(#{call := {Module, Function, Arity}}) -> <<Module/binary, ":", Function/binary, "/", (integer_to_binary(Arity))/binary>>;
called(#{call := {child_of, Maker}}) -> <<"child of ", Maker/binary>>;
called(_) -> <<>>.

of_owner(Thing, Owner, Features) ->
    Of = case called(identity(Owner, Features)) of
             Called when Called =/= <<>> -> Called;
             _ -> id(Owner)
         end,
    <<Thing/binary, " of ", Of/binary>>.
