%% `spawns' and `atoms': which code creates processes, and what the newest atoms have in common.
%% Both tell what makes a node grow until it reaches one of the VM's limits.

%% So many of the newest atoms are looked at, of which so many must begin alike, with so many bytes, for the beginning to be told; and
%% so many beginnings of one are tried.
-define(NEWEST_ATOMS, 50).
-define(FEW_ALIKE, 3).
-define(SHORT_BEGINNING, 2).
-define(MOST_BEGINNINGS, 8).
%% How many new processes are kept for `crashes'.
-define(FRESH, 20).

%% Asks a few of the new processes, while they still live, what they run and who made them.
note_origins(#seen{new = New, fresh = Fresh}, #procs{origins = Origins} = Procs, #state{features = Features} = State) ->
    Found = details(fun(Pid) -> origin(Pid, Features) end, Fresh, State),
    Procs#procs{origins = lists:foldl(fun({_, O}, Map) -> merge(O, 1, fun erlang:'+'/2, Map) end, Origins, Found),
                fresh = lists:sublist(Fresh ++ Procs#procs.fresh, ?FRESH),
                new = Procs#procs.new + New, sampled = Procs#procs.sampled + length(Found)}.

%% What it runs, its parent's name, what its parent runs; `undefined' when it has ended meanwhile.
origin(Pid, Features) ->
    case identity(Pid, Features) of
        undefined -> undefined;
        #{call := Call, parent := Parent} when is_pid(Parent), node(Parent) =:= node() ->
            case identity(Parent, Features) of
                undefined -> #{call => Call, name => <<>>, parent_call => undefined};
                #{call := ParentCall} = Identity ->
                    #{call => Call, name => maps:get(name, Identity, <<>>), parent_call => ParentCall}
            end;
        #{call := Call, parent := Name} when is_atom(Name), Name =/= undefined ->
            #{call => Call, name => bin(Name), parent_call => undefined};
        #{call := Call} -> #{call => Call, name => <<>>, parent_call => undefined}
    end.

spawns(#state{procs = #procs{origins = Origins, sampled = Sampled, new = New} = Procs} = State) ->
    Calls = [{Call, Name, ParentCall, Count}
             || {#{call := Call, name := Name, parent_call := ParentCall}, Count} <- maps:to_list(Origins)],
    {#{new => New, sampled => Sampled, calls => lists:sublist(lists:reverse(lists:keysort(4, Calls)), 20)},
     State#state{procs = Procs#procs{origins = #{}, sampled = 0, new = 0}}}.

%% How the newest atoms since `atoms' was read before begin, which tells what they are made of. What is made from input is data: no
%% atom is told, but what several have in common.
%%
%% Atoms are never freed, so they stand in their table in the order in which they were made, and the VM's own terms may name one by
%% its place (ATOM_INTERNAL_REF3 in external.c, of 24 bits; badarg where there is none).
atoms(#state{atoms = Before} = State) ->
    Count = erlang:system_info(atom_count),
    Places = lists:seq(max(Before, Count - ?NEWEST_ATOMS), Count - 1),
    Newest = [starts(Text) || Place <- Places, Text <- atom_at(Place)],
    {#{new => Count - Before, sampled => length(Newest), beginnings => beginnings(Newest)}, State#state{atoms = Count}}.

atom_at(Place) when Place < 1 bsl 24 ->
    try [bin(binary_to_term(<<131, 75, Place:24>>))] catch error:badarg -> [] end;
atom_at(_) -> [].

%% From what each may share, [{Beginning, how many}]: the most frequent one first, of equally frequent ones the longest; then those of the
%% others.
beginnings(Each) ->
    Counts = lists:foldl(fun(Start, Map) -> merge(Start, 1, fun erlang:'+'/2, Map) end, #{}, lists:append(Each)),
    case lists:sort([{-N, -byte_size(Start), Start} || {Start, N} <- maps:to_list(Counts), N >= ?FEW_ALIKE]) of
        [{N, _, Start} | _] -> [{Start, -N} | beginnings([Starts || Starts <- Each, not lists:member(Start, Starts)])];
        [] -> []
    end.

%% What others may share: up to each separator, and the first letters.
starts(Text) ->
    Bytes = binary_to_list(Text),
    Letters = length(lists:takewhile(fun is_letter/1, Bytes)),
    Separated = [End || {End, Byte} <- lists:zip(lists:seq(1, length(Bytes)), Bytes), not is_of_word(Byte)],
    Ends = [End || End <- lists:usort([Letters | Separated]), End >= ?SHORT_BEGINNING, End < byte_size(Text)],
    [binary:part(Text, 0, End) || End <- lists:sublist(Ends, ?MOST_BEGINNINGS)].

is_of_word(Byte) -> is_letter(Byte) orelse Byte >= $0 andalso Byte =< $9 orelse Byte > 127.

is_letter(Byte) -> Byte >= $a andalso Byte =< $z orelse Byte >= $A andalso Byte =< $Z.
