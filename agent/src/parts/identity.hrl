%% Identity of a process: name, label, initial call and parent.
%% Everything here runs in the reader, because the process itself answers.

%% On releases that cannot read a single key of a process dictionary, it is read only of processes whose whole heap is
%% at most this large, because reading copies all of it.
-define(DICTIONARY_HEAP_WORDS, 131072).

%% #{call, parent} and, if present, name and label: initial call, and parent. `undefined' if the process has ended.
identity(Pid, Features) ->
    case noted(Pid, Features) of
        #{call := {<<"proc_lib">>, _, _}, parent := Parent} = Identity ->
            case maker(Parent, Features) of
                <<>> -> Identity;
                Maker -> Identity#{call => {child_of, Maker}}
            end;
        Identity -> Identity
    end.

%% Name, label or call of a process's parent; <<>> if that is unknown, too.
maker(Parent, Features) when is_pid(Parent), node(Parent) =:= node() ->
    case noted(Parent, Features) of
        #{call := {<<"proc_lib">>, _, _}} = Identity -> called(maps:remove(call, Identity));
        Identity -> called(Identity)
    end;
maker(Name, _) when is_atom(Name), Name =/= undefined -> bin(Name);
maker(_, _) -> <<>>.

%% As identity/2, without reading the parent.
noted(Pid, Features) ->
    Parent = [parent || lists:member(parent, Features)],
    case process_info(Pid, [registered_name, initial_call, garbage_collection_info | Parent]) of
        [{_, Name}, {_, Call}, {_, Heaps} | Made] ->
            Notes = maps:merge(#{parent => undefined}, maps:merge(notes(Pid, Call, heap_words(Heaps), Features),
                                                                  maps:from_list(Made))),
            Called = Notes#{call => case Notes of #{call := {_, _, _} = Noted} -> Noted; _ -> mfa(Call) end},
            case Name of [] -> Called; _ -> Called#{name => bin(Name)} end;
        undefined -> undefined
    end.

%% Initial call and parent from proc_lib's keys in the process dictionary; for a process that was spawned with a fun, the fun. If a
%% single key cannot be read, the dictionary is read of small processes only, because all of it is copied.
notes(Pid, {erlang, apply, 2}, _, Features) ->
    Label = [label || lists:member(label, Features)],
    case process_info(Pid, [current_stacktrace | Label]) of
        [{_, Stack} | Rest] ->
            case [mfa({M, F, A}) || {M, F, A, _} <- lists:reverse(Stack), M =/= erlang] of
                [Fun | _] -> maps:merge(#{call => Fun}, label(Rest));
                [] -> label(Rest)
            end;
        undefined -> #{}
    end;
notes(Pid, Call, HeapWords, Features) ->
    case {lists:member(dictionary_item, Features), Call} of
        {true, _} ->
            Label = [label || lists:member(label, Features)],
            Named = [{dictionary, process_name} || lists:member(process_name, Features)],
            case process_info(Pid, [{dictionary, '$initial_call'} | Named ++ Label]) of
                [{_, Initial}, {_, Title} | Rest] when Named =/= [] ->
                    maps:merge(maps:merge(#{call => mfa(Initial)}, process_title(Title)), label(Rest));
                [{_, Initial} | Rest] -> maps:merge(#{call => mfa(Initial)}, label(Rest));
                undefined -> #{}
            end;
        {false, {proc_lib, _, _}} when HeapWords =< ?DICTIONARY_HEAP_WORDS ->
            case process_info(Pid, dictionary) of
                {dictionary, Dictionary} ->
                    Parent = case lists:keyfind('$ancestors', 1, Dictionary) of
                                 {_, [P | _]} when is_pid(P); is_atom(P) -> P;
                                 _ -> undefined
                             end,
                    Title = case lists:member(process_name, Features) of
                                true -> process_title(proplists:get_value(process_name, Dictionary));
                                false -> #{}
                            end,
                    Title#{call => mfa(proplists:get_value('$initial_call', Dictionary)), parent => Parent};
                undefined -> #{}
            end;
        _ -> #{}
    end.

%% Names that RabbitMQ's processes store in their dictionary (rabbit_misc:store_proc_name/2).
process_title({rabbit_amqqueue_process, {resource, VHost, queue, Name}}) when is_binary(VHost), is_binary(Name) ->
    titled(<<"queue ">>, queue_title(VHost, Name));
process_title({rabbit_reader, Connection}) when is_binary(Connection) -> titled(<<"connection ">>, Connection);
process_title({Module, {Connection, Channel}}) when is_binary(Connection), is_integer(Channel) ->
    case Module of
        rabbit_channel -> titled(<<"channel ", (integer_to_binary(Channel))/binary, " of ">>, Connection);
        rabbit_writer -> titled(<<"writer of channel ", (integer_to_binary(Channel))/binary, " of ">>, Connection);
        _ -> #{}
    end;
process_title(_) -> #{}.

titled(What, Name) -> #{label => cut(<<What/binary, (bin(Name))/binary>>, ?NAME_BYTES)}.

label([{label, undefined}]) -> #{};
label([{label, Label}]) -> #{label => text(Label)};
label([]) -> #{}.

%% Young and old heap and fragments, as allocated.
heap_words([{old_heap_block_size, Old}, {heap_block_size, Young}, {mbuf_size, Fragments} | _]) ->
    Old + Young + Fragments.

%% Virtual binary heap: off-heap binaries that the process refers to, as the garbage collector counts them.
vheap_words([_, _, _, _, _, _, _, {bin_vheap_size, Young}, _, {bin_old_vheap_size, Old} | _]) ->
    Young + Old.

%% Name and initial call, for owners of tables and ports.
owner(Pid, Features) ->
    case identity(Pid, Features) of
        undefined -> #{owner => id(Pid)};
        #{call := Call} = Identity ->
            #{owner => id(Pid), owner_name => maps:get(name, Identity, <<>>), owner_call => Call}
    end.
