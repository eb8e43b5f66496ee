%% `spawns' and `atoms': which code creates processes, and what the newest atoms have in common.
%% Both tell what makes a node grow until it reaches one of the VM's limits.

%% So many of the newest atoms are looked at, of which so many must begin alike, with so many bytes, for the beginning to be told; and
%% so many beginnings of one are tried.
-define(NEWEST_ATOMS, 50).
-define(FEW_ALIKE, 3).
-define(SHORT_BEGINNING, 2).
-define(MOST_BEGINNINGS, 8).
%% A process starts with a heap that holds its arguments, which are copied to it (HeapWords of erl_create_process). One that has run so few
%% reductions, has never been collected and has so many words in its heap was given them: without a collection that heap does not grow.
-define(GIVEN_REDUCTIONS, 1000).
-define(GIVEN_WORDS, 4096).
%% How many kinds of processes with such arguments are reported.
-define(GIVEN_KINDS, 5).
%% How many new processes are kept for `crashes'.
-define(FRESH, 20).
%% How many new processes are looked at again when `spawns' is read, and how many of those that still live then the next time, too.
-define(AGAIN, 40).
-define(STILL, 20).
%% How many rows of these are reported.
-define(AGAIN_ROWS, 20).

%% Asks a few of the new processes, while they still live, what they run and who made them.
note_origins(#seen{new = New, fresh = Fresh}, #procs{origins = Origins} = Procs, #state{features = Features} = State) ->
    Found = details(fun(Pid) -> came(given_words(Pid), origin(Pid, Features), Pid, Features) end, Fresh, State),
    Procs#procs{origins = lists:foldl(fun({_, #{origin := O}}, Map) -> merge(O, 1, fun erlang:'+'/2, Map) end, Origins, Found),
                given = lists:foldl(fun given/2, Procs#procs.given, Found),
                fresh = lists:sublist(Fresh ++ Procs#procs.fresh, ?FRESH),
                again = lists:sublist(Procs#procs.again ++ [{Pid, Call} || {Pid, #{origin := #{call := Call}}} <- Found], ?AGAIN),
                new = Procs#procs.new + New, sampled = Procs#procs.sampled + length(Found)}.

%% What it is, and by whom it was given how many words, if these are many.
came(_, undefined, _, _) -> undefined;
came(0, Origin, _, _) -> #{origin => Origin};
came(Words, Origin, Pid, Features) -> #{origin => Origin, given => {giver(Pid, Origin, Features), Words}}.

%% In the reader, before the process is asked anything that it answers itself.
given_words(Pid) ->
    case process_info(Pid, [reductions, garbage_collection_info]) of
        [{_, Reductions}, {_, [{old_heap_block_size, 0} | Heaps]}] when Reductions =< ?GIVEN_REDUCTIONS ->
            case proplists:get_value(heap_size, Heaps, 0) of
                Words when Words >= ?GIVEN_WORDS -> Words;
                _ -> 0
            end;
        _ -> 0
    end.

%% Elixir's tasks note who called for them: their parent is a supervisor.
giver(Pid, #{name := Name, parent_call := ParentCall}, Features) ->
    Callers = case lists:member(dictionary_item, Features) andalso process_info(Pid, {dictionary, '$callers'}) of
                  {_, [Caller | _]} when is_pid(Caller) -> maker(Caller, Features);
                  _ -> <<>>
              end,
    case {Callers, Name, ParentCall} of
        {<<>>, <<>>, undefined} -> <<>>;
        {<<>>, <<>>, {M, F, A}} -> <<M/binary, $:, F/binary, $/, (integer_to_binary(A))/binary>>;
        {<<>>, <<>>, _} -> <<>>;
        {<<>>, Name, _} -> Name;
        {Callers, _, _} -> Callers
    end.

given({_, #{origin := #{call := Call}, given := {Giver, Words}}}, Given) ->
    {Count, Sum} = maps:get({Call, Giver}, Given, {0, 0}),
    Given#{{Call, Giver} => {Count + 1, Sum + Words}};
given(_, Given) -> Given.

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

spawns(#state{procs = #procs{origins = Origins, sampled = Sampled, new = New, given = Given, again = Again} = Procs} = State) ->
    Calls = [{Call, Name, ParentCall, Count}
             || {#{call := Call, name := Name, parent_call := ParentCall}, Count} <- maps:to_list(Origins)],
    Large = lists:sublist(lists:reverse(lists:keysort(4, [{Call, Giver, Count, Words * erlang:system_info(wordsize)}
                                                          || {{Call, Giver}, {Count, Words}} <- maps:to_list(Given)])), ?GIVEN_KINDS),
    {Rows, Still} = again(Again, State),
    {#{new => New, sampled => Sampled, given => Large, calls => lists:sublist(lists:reverse(lists:keysort(4, Calls)), 20), again => Rows},
     State#state{procs = Procs#procs{origins = #{}, sampled = 0, new = 0, given = #{}, again = Still}}}.

%% What has become of those that were new some seconds ago: how many of a kind there were, and where those stand that still live. A process
%% that has an end is not there any more, or at work; one that nobody ends waits for the next message, and it tells whom it watches.
again(Known, State) ->
    Looked = [{Pid, Call, Stand} || {{Pid, Call}, Stand} <- details(fun({Pid, _}) -> again(Pid) end, Known, State)],
    Kinds = lists:foldl(fun({_, Call, _}, Map) -> merge(Call, 1, fun erlang:'+'/2, Map) end, #{}, Looked),
    Places = lists:foldl(fun({_, Call, #{status := Status, stack := Stack} = Stand}, Map) ->
                             Key = {Call, Status},
                             Map#{Key => add_stand(Stand#{stack := Stack}, maps:get(Key, Map, #{}))}
                         end, #{}, Looked),
    Rows = [{Call, maps:get(Call, Kinds), Status, Stack, N, Queued, best_on(On)}
            || {{Call, Status}, Stood} <- maps:to_list(Places), {Stack, {N, Queued, On}} <- maps:to_list(Stood)],
    {lists:sublist(lists:reverse(lists:keysort(5, Rows)), ?AGAIN_ROWS),
     lists:sublist([{Pid, Call} || {Pid, Call, #{status := Status}} <- Looked, Status =/= ended], ?STILL)}.

again(Pid) ->
    case stand(Pid, fun(_) -> true end) of
        undefined -> #{status => ended, queue => 0, stack => [], on => []};
        #{has_few := true, on := []} = Stand -> Stand#{on := monitored(Pid)};
        Stand -> Stand
    end.

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
