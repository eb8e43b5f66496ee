%% Mnesia's counters, from its own tables; its processes are not asked. Both tables are public, and hold a few words for each key read here.

%% Maximum number of Mnesia nodes reported.
-define(MNESIA_NODES, 50).

%% Counters of transactions, as mnesia:system_info/1 reads them, and of the log, as mnesia_dumper does: writes so far, those before the
%% last dump began, and the threshold for the next one. Empty if Mnesia does not run.
mnesia() ->
    try [ets:lookup_element(mnesia_stats, C, 2) || C <- [trans_commits, trans_restarts, trans_failures]] of
        [Commits, Restarts, Failures] when is_integer(Commits), is_integer(Restarts), is_integer(Failures) ->
            #{mnesia => maps:merge(#{commits => Commits, restarts => Restarts, failures => Failures}, mnesia_log())};
        _ -> #{}
    catch error:badarg -> #{}
    end.

mnesia_log() ->
    try
        [Counted, Left, Dumped] = [ets:lookup_element(mnesia_stats, C, 2) || C <- [trans_log_writes, trans_log_writes_left, trans_log_writes_prev]],
        Threshold = ets:lookup_element(mnesia_gvar, dump_log_write_threshold, 2),
        #{log_writes => Counted + Threshold - Left, log_dumped => Dumped, log_threshold => Threshold}
    catch error:_ -> #{}
    end.

%% Connected nodes with a copy of the schema: [{Node, whether its Mnesia is connected}].
mnesia_nodes() ->
    try
        [Current | Copies] = [ets:lookup_element(mnesia_gvar, Key, 2)
                              || Key <- [{current, db_nodes}, {schema, disc_copies}, {schema, ram_copies}]],
        [{bin(Node), lists:member(Node, Current)} || Node <- lists:sublist(nodes(), ?MNESIA_NODES), lists:member(Node, lists:append(Copies))]
    catch error:_ -> []
    end.
