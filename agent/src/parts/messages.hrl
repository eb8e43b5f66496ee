%% `weigh' and `messages': how large the messages are that processes receive, without reading any.
%% A process that ran no reductions between two looks took no message, so what its heap has grown by is what came: the VM puts a
%% message on the heap of its receiver, or into a fragment of it, when it is sent.

%% How many processes are sampled at least, for how much of the budget (percent), and what sampling one costs.
-define(LEAST_RECEIVERS, 10).
-define(RECEIVERS_SHARE, 5).
-define(RECEIVER_US, 8).
%% The pauses between two looks at the same process. Each look sees only what the receiver has not taken yet, so there are several,
%% close enough together that it has taken nothing else in between.
-define(RECEIVER_PAUSES_MS, [1, 1, 1, 1]).
%% How many receivers are reported, and remembered until then.
-define(RECEIVER_ROWS, 20).
-define(RECEIVERS_KNOWN, 500).

%% On a quiet node messages cost nothing, whatever their size; to look wakes the collector and its reader five times.
weigh(#state{procs = #procs{quiet = true}} = State) -> {#{sampled => 0}, State};
weigh(#state{budget_ppm = Budget, interval_ns = Interval, procs = #procs{active = {Active, Pids}}, weighed = Before, came = Came} = State) ->
    Most = min(?MOST_RECEIVERS, Interval * Budget * ?RECEIVERS_SHARE div (100 * 1000000 * 1000 * ?RECEIVER_US)),
    case some(max(?LEAST_RECEIVERS, Most), Pids) of
        [] -> {#{sampled => 0}, State};
        Receivers ->
            Begin = now_ns(),
            {_, Now} = lists:foldl(fun(Pause, {Old, Sums}) ->
                                       receive after Pause -> ok end,
                                       New = receivers(Receivers),
                                       {New, lists:foldl(fun came/2, Sums, lists:zip3(Receivers, Old, New))}
                                   end, {receivers(Receivers), Came}, ?RECEIVER_PAUSES_MS),
            {AllActive, AllSampled, Us} = Before,
            Sampled = length(Receivers),
            {#{sampled => Sampled},
             State#state{weighed = {AllActive + Active, AllSampled + Sampled, Us + (now_ns() - Begin) div 1000}, came = Now}}
    end.

%% So many in a row, from a place left to chance: the list is in the order of the VM's process table, round after round.
some(_, []) -> [];
some(Count, Pids) ->
    {Before, From} = lists:split(chance(length(Pids)) - 1, Pids),
    lists:sublist(From ++ Before, Count).

messages(#state{weighed = {Active, Sampled, Us}, came = Came} = State) ->
    Weighed = [{Words, Pid, Class, Count} || {{Pid, Class}, {Count, Words}} <- maps:to_list(Came), Class =/= off_heap],
    Sizes = lists:foldl(fun({Words, _, Class, Count}, Sums) -> add_came({others, Class}, Count, Words, Sums) end, #{}, Weighed),
    Heaviest = lists:sublist(lists:reverse(lists:sort([Row || {_, Pid, _, _} = Row <- Weighed, is_pid(Pid)])), ?RECEIVER_ROWS),
    Word = erlang:system_info(wordsize),
    {#{active => Active, sampled => Sampled, us => Us,
       off_heap => lists:sum([Count || {{_, off_heap}, {Count, _}} <- maps:to_list(Came)]),
       sizes => [{Count, Words * Word} || {_, {Count, Words}} <- lists:sort(maps:to_list(Sizes))],
       rows => [{id(Pid), Count, Words * Word} || {Words, Pid, _, Count} <- Heaviest]},
     State#state{weighed = {0, 0, 0}, came = #{},
                 received = lists:sublist(unique([Pid || {_, Pid, _, _} <- Heaviest]), ?MOST_WANTED)}}.

%% [{reductions, messages, where these are, words in use}]. Read from outside, but for those that run or have messages that they have
%% not looked at: these answer when they are scheduled next, before they take a message. So all is asked in one: after an answer they
%% go on, and take what has come.
receivers(Pids) ->
    read_all(fun(Pid, _) ->
                 case process_info(Pid, [reductions, message_queue_len, message_queue_data, garbage_collection_info]) of
                     [{_, Reductions}, {_, Queue}, {_, Data}, {_, Heaps}] ->
                         {Reductions, Queue, Data, used_words(Heaps)};
                     undefined -> undefined
                 end
             end, Pids).

%% Words in use, old ones too: a full collection moves these into the young heap, and none makes the sum larger.
used_words(Heaps) ->
    lists:sum([proplists:get_value(Key, Heaps) || Key <- [heap_size, old_heap_size, mbuf_size]]).

%% {Pid, binary digits of the words of one message} => {messages, words}; those off the heap are not weighed.
%% A message that comes for a suspended process costs it a reduction; to take one costs more.
came({Pid, {Done, Before, Data, WordsBefore}, {Reductions, Now, Data, Words}}, Sums)
  when Reductions - Done =< 1, Now > Before, Words >= WordsBefore ->
    Count = Now - Before,
    Class = case Data of
                on_heap -> length(integer_to_list((Words - WordsBefore) div Count, 2));
                off_heap -> off_heap
            end,
    add_came({Pid, Class}, Count, Words - WordsBefore, Sums);
came(_, Sums) -> Sums.

%% Of a size that nobody new is remembered for the pid is left out.
add_came(Key, Count, Words, Sums) ->
    case Sums of
        #{Key := {CountBefore, WordsBefore}} -> Sums#{Key => {CountBefore + Count, WordsBefore + Words}};
        _ when map_size(Sums) < ?RECEIVERS_KNOWN; element(1, Key) =:= others -> Sums#{Key => {Count, Words}};
        _ -> add_came({others, element(2, Key)}, Count, Words, Sums)
    end.
