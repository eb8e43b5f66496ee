%% `spawns' and `atoms': which code creates processes, and common prefixes of the newest atoms.
%% Both show what makes a node grow until it reaches one of the VM's limits.

%% Number of the newest atoms read; minimum number of atoms with a common prefix; minimum length of a prefix, in bytes; maximum
%% number of prefixes tried per atom.
-define(NEWEST_ATOMS, 50).
-define(MIN_ALIKE, 3).
-define(MIN_PREFIX_BYTES, 2).
-define(MAX_PREFIXES, 8).
%% A process starts with a heap that holds its arguments, which are copied to it (HeapWords of erl_create_process). If it has run at most
%% this many reductions without a garbage collection, and has at least this many words on its heap, they are its arguments: without a
%% garbage collection that heap does not grow.
-define(GIVEN_REDUCTIONS, 1000).
-define(GIVEN_WORDS, 4096).
%% Number of kinds of processes with such arguments that are reported.
-define(GIVEN_KINDS, 5).
%% Number of new processes kept for `crashes'.
-define(FRESH, 20).
%% Number of new processes that are sampled again when `spawns' is read, and of those then alive that are sampled once more.
-define(AGAIN, 40).
-define(STILL, 20).
%% Number of rows reported about these.
-define(AGAIN_ROWS, 20).

%% Reads initial call and parent of a few new processes while they are still alive.
note_origins(#seen{new = New, fresh = Fresh}, #procs{origins = Origins} = Procs, #state{features = Features} = State) ->
    Found = details(fun(Pid) -> with_given(given_words(Pid), origin(Pid, Features), Pid, Features) end, Fresh, State),
    Procs#procs{origins = lists:foldl(fun({_, #{origin := O}}, Map) -> merge(O, 1, fun erlang:'+'/2, Map) end, Origins, Found),
                given = lists:foldl(fun given/2, Procs#procs.given, Found),
                fresh = lists:sublist(Fresh ++ Procs#procs.fresh, ?FRESH),
                again = lists:sublist(Procs#procs.again ++ [{Pid, Call} || {Pid, #{origin := #{call := Call}}} <- Found], ?AGAIN),
                new = Procs#procs.new + New, sampled = Procs#procs.sampled + length(Found)}.

%% Origin of a new process and, if its arguments are large, who gave it how many words.
with_given(_, undefined, _, _) -> undefined;
with_given(0, Origin, _, _) -> #{origin => Origin};
with_given(Words, Origin, Pid, Features) -> #{origin => Origin, given => {giver(Pid, Origin, Features), Words}}.

%% In the reader, before anything is read that the process itself answers.
given_words(Pid) ->
    case process_info(Pid, [reductions, garbage_collection_info]) of
        [{_, Reductions}, {_, [{old_heap_block_size, 0} | Heaps]}] when Reductions =< ?GIVEN_REDUCTIONS ->
            case proplists:get_value(heap_size, Heaps, 0) of
                Words when Words >= ?GIVEN_WORDS -> Words;
                _ -> 0
            end;
        _ -> 0
    end.

%% Elixir's tasks store their callers, since their parent is a supervisor.
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

%% Initial call, name and initial call of the parent; `undefined' if the process has ended.
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

%% Samples again the processes that were new some seconds ago: how many of each kind, and the call stacks of those still alive. A process
%% with a task has ended or is working; a leaked one waits for the next message, and its monitors show what it waits for.
again(Known, State) ->
    Looked = [{Pid, Call, Sample} || {{Pid, Call}, Sample} <- details(fun({Pid, _}) -> again(Pid) end, Known, State)],
    Kinds = lists:foldl(fun({_, Call, _}, Map) -> merge(Call, 1, fun erlang:'+'/2, Map) end, #{}, Looked),
    Places = lists:foldl(fun({_, Call, #{status := Status, stack := Stack} = Sample}, Map) ->
                             Key = {Call, Status},
                             Map#{Key => add_wait_sample(Sample#{stack := Stack}, maps:get(Key, Map, #{}))}
                         end, #{}, Looked),
    Rows = [{Call, maps:get(Call, Kinds), Status, Stack, N, Queued, best_on(On)}
            || {{Call, Status}, Stacks} <- maps:to_list(Places), {Stack, {N, Queued, On}} <- maps:to_list(Stacks)],
    {lists:sublist(lists:reverse(lists:keysort(5, Rows)), ?AGAIN_ROWS),
     lists:sublist([{Pid, Call} || {Pid, Call, #{status := Status}} <- Looked, Status =/= ended], ?STILL)}.

again(Pid) ->
    case wait_sample(Pid, fun(_) -> true end) of
        undefined -> #{status => ended, queue => 0, stack => [], on => []};
        #{has_few := true, on := []} = Sample -> Sample#{on := monitored(Pid)};
        Sample -> Sample
    end.

%% Common prefixes of the newest atoms since `atoms' was last read, which show what they are made from. Atoms made from input are data, so
%% only what several have in common is reported.
%%
%% Atoms are never freed, so the atom table is in the order of creation, and the VM's own term format can refer to an atom by
%% its index (ATOM_INTERNAL_REF3 in external.c, 24 bits; badarg if there is no such atom).
atoms(#state{atoms = Before} = State) ->
    Count = erlang:system_info(atom_count),
    Places = lists:seq(max(Before, Count - ?NEWEST_ATOMS), Count - 1),
    Newest = [starts(Text) || Place <- Places, Text <- atom_at(Place)],
    {#{new => Count - Before, sampled => length(Newest), beginnings => beginnings(Newest)}, State#state{atoms = Count}}.

atom_at(Place) when Place < 1 bsl 24 ->
    try [bin(binary_to_term(<<131, 75, Place:24>>))] catch error:badarg -> [] end;
atom_at(_) -> [].

%% From the candidate prefixes of each atom, [{Prefix, count}]: the most frequent one first, of equally frequent ones the longest; then
%% those of the remaining atoms.
beginnings(Each) ->
    Counts = lists:foldl(fun(Start, Map) -> merge(Start, 1, fun erlang:'+'/2, Map) end, #{}, lists:append(Each)),
    case lists:sort([{-N, -byte_size(Start), Start} || {Start, N} <- maps:to_list(Counts), N >= ?MIN_ALIKE]) of
        [{N, _, Start} | _] -> [{Start, -N} | beginnings([Starts || Starts <- Each, not lists:member(Start, Starts)])];
        [] -> []
    end.

%% Candidate prefixes: up to each separator, and the first letters.
starts(Text) ->
    Bytes = binary_to_list(Text),
    Letters = length(lists:takewhile(fun is_letter/1, Bytes)),
    Separated = [End || {End, Byte} <- lists:zip(lists:seq(1, length(Bytes)), Bytes), not is_of_word(Byte)],
    Ends = [End || End <- lists:usort([Letters | Separated]), End >= ?MIN_PREFIX_BYTES, End < byte_size(Text)],
    [binary:part(Text, 0, End) || End <- lists:sublist(Ends, ?MAX_PREFIXES)].

is_of_word(Byte) -> is_letter(Byte) orelse Byte >= $0 andalso Byte =< $9 orelse Byte > 127.

is_letter(Byte) -> Byte >= $a andalso Byte =< $z orelse Byte >= $A andalso Byte =< $Z.
