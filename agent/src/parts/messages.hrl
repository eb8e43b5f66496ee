%% `weigh' and `messages': sizes of the messages that processes receive, without reading any.
%% A process that ran no reductions between two readings took no message, so its heap has grown by the messages received: the VM puts
%% a message on the heap of its receiver, or into a heap fragment, when it is sent.

%% Minimum size of the sample, its share of the budget (percent), and the cost of one process.
-define(MIN_RECEIVERS, 10).
-define(RECEIVERS_SHARE, 5).
-define(RECEIVER_US, 8).
%% Pauses between the readings of a process. Each sees only messages that the receiver has not taken yet, so there are several, close
%% enough together that it has taken none in between.
-define(RECEIVER_PAUSES_MS, [1, 1, 1, 1]).
%% Number of receivers reported, and kept until then.
-define(RECEIVER_ROWS, 20).
-define(RECEIVERS_KNOWN, 500).

%% On a quiet node messages cost nothing, whatever their size, while sampling would wake the collector and its reader five times.
weigh(#state{procs = #procs{quiet = true}} = State) -> {#{sampled => 0}, State};
weigh(#state{budget_ppm = Budget, interval_ns = Interval, procs = #procs{active = {Active, Pids}}, weighed = Before, received_sizes = Came} = State) ->
    Max = min(?MAX_RECEIVERS, Interval * Budget * ?RECEIVERS_SHARE div (100 * 1000000 * 1000 * ?RECEIVER_US)),
    case some(max(?MIN_RECEIVERS, Max), Pids) of
        [] -> {#{sampled => 0}, State};
        Receivers ->
            Begin = now_ns(),
            {_, Now} = lists:foldl(fun(Pause, {Old, Sums}) ->
                                       receive after Pause -> ok end,
                                       New = receivers(Receivers),
                                       {New, lists:foldl(fun add_received/2, Sums, lists:zip3(Receivers, Old, New))}
                                   end, {receivers(Receivers), Came}, ?RECEIVER_PAUSES_MS),
            {AllActive, AllSampled, Us} = Before,
            Sampled = length(Receivers),
            {#{sampled => Sampled},
             State#state{weighed = {AllActive + Active, AllSampled + Sampled, Us + (now_ns() - Begin) div 1000}, received_sizes = Now}}
    end.

%% Count consecutive elements from a random position: the list is in the order of the VM's process table in each round.
some(_, []) -> [];
some(Count, Pids) ->
    {Before, From} = lists:split(chance(length(Pids)) - 1, Pids),
    lists:sublist(From ++ Before, Count).

messages(#state{weighed = {Active, Sampled, Us}, received_sizes = Came} = State) ->
    Weighed = [{Words, Pid, Class, Count} || {{Pid, Class}, {Count, Words}} <- maps:to_list(Came), Class =/= off_heap],
    Sizes = lists:foldl(fun({Words, _, Class, Count}, Sums) -> add_messages({others, Class}, Count, Words, Sums) end, #{}, Weighed),
    Heaviest = lists:sublist(lists:reverse(lists:sort([Row || {_, Pid, _, _} = Row <- Weighed, is_pid(Pid)])), ?RECEIVER_ROWS),
    Word = erlang:system_info(wordsize),
    {#{active => Active, sampled => Sampled, us => Us,
       off_heap => lists:sum([Count || {{_, off_heap}, {Count, _}} <- maps:to_list(Came)]),
       sizes => [{Count, Words * Word} || {_, {Count, Words}} <- lists:sort(maps:to_list(Sizes))],
       rows => [{id(Pid), Count, Words * Word} || {Words, Pid, _, Count} <- Heaviest]},
     State#state{weighed = {0, 0, 0}, received_sizes = #{},
                 received = lists:sublist(unique([Pid || {_, Pid, _, _} <- Heaviest]), ?MAX_NOTED)}}.

%% [{reductions, queue length, message_queue_data, words in use}]. Read from outside, except for processes that run or have unfetched
%% messages: these answer when they are next scheduled, before they take a message. So all items are read in one call: after the
%% answer they go on and take messages.
receivers(Pids) ->
    read_all(fun(Pid, _) ->
                 case process_info(Pid, [reductions, message_queue_len, message_queue_data, garbage_collection_info]) of
                     [{_, Reductions}, {_, Queue}, {_, Data}, {_, Heaps}] ->
                         {Reductions, Queue, Data, used_words(Heaps)};
                     undefined -> undefined
                 end
             end, Pids).

%% Words in use, including the old heap: a fullsweep moves these into the young heap, and no garbage collection increases the sum.
used_words(Heaps) ->
    lists:sum([proplists:get_value(Key, Heaps) || Key <- [heap_size, old_heap_size, mbuf_size]]).

%% {Pid, binary digits of the words of one message} => {messages, words}; sizes of off-heap messages are unknown.
%% A message to a suspended process costs it one reduction; taking one costs more.
add_received({Pid, {Done, Before, Data, WordsBefore}, {Reductions, Now, Data, Words}}, Sums)
  when Reductions - Done =< 1, Now > Before, Words >= WordsBefore ->
    Count = Now - Before,
    Class = case Data of
                on_heap -> length(integer_to_list((Words - WordsBefore) div Count, 2));
                off_heap -> off_heap
            end,
    add_messages({Pid, Class}, Count, Words - WordsBefore, Sums);
add_received(_, Sums) -> Sums.

%% When no more receivers are kept, messages are counted without the pid.
add_messages(Key, Count, Words, Sums) ->
    case Sums of
        #{Key := {CountBefore, WordsBefore}} -> Sums#{Key => {CountBefore + Count, WordsBefore + Words}};
        _ when map_size(Sums) < ?RECEIVERS_KNOWN; element(1, Key) =:= others -> Sums#{Key => {Count, Words}};
        _ -> add_messages({others, element(2, Key)}, Count, Words, Sums)
    end.
