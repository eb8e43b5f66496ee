%% `code_memory': memory of the code of each application. Listing the modules stops all schedulers for a moment, so it is done
%% only if every scheduler answers.

%% Listing the code of all modules, and setting a system_monitor, stop all schedulers: neither is done if a scheduler does not answer
%% within this time.
-define(PROBE_NS, 100000000).
-define(MAX_MODULES, 100000).

%% The only source of module sizes blocks all other threads, after waiting until all of them have stopped. If a scheduler is inside a
%% long NIF, all others would wait for it, so a harmless request to all schedulers comes first.
code_memory(Top, Params) ->
    Until = until(code_memory, Params),
    schedulers_answer() orelse error(a_scheduler_does_not_answer),
    case run_isolated(fun() -> loaded(Top) end, Until) of
        {ok, Value} -> Value;
        Why -> error({not_listed, Why})
    end.

%% Sends a request to all schedulers, which stops none of them.
schedulers_answer() ->
    Probe = fun() -> erlang:statistics(garbage_collection) end,
    case run_isolated(Probe, now_ns() + ?PROBE_NS, [{priority, high}, max_words(?WORKER_HEAP_WORDS)]) of
        {ok, _} -> true;
        _ -> false
    end.

%% Lines of the form `module 123' or `module 123 (45 old)' after two lines of sums.
loaded(Top) ->
    Begin = now_ns(),
    Text = erlang:system_info(loaded),
    Stopped = now_ns() - Begin,
    [_, _ | Lines] = binary:split(Text, <<"\n">>, [global]),
    Applications = applications_of_modules(),
    {Sums, Unread} = lists:foldl(fun(Line, Sums) -> add_module(Line, Applications, Sums) end, {#{}, 0},
                                 lists:sublist([Line || Line <- Lines, Line =/= <<>>], ?MAX_MODULES)),
    Rows = lists:reverse(lists:keysort(3, [{App, Count, Bytes, Old} || {App, {Count, Bytes, Old}} <- maps:to_list(Sums)])),
    Sum = fun(Place) -> lists:sum([element(Place, Row) || Row <- Rows]) end,
    #{count := Terms, memory := TermBytes} = persistent_term:info(),
    #{rows => lists:sublist(Rows, Top), applications => length(Rows), modules => Sum(2), bytes => Sum(3), old_bytes => Sum(4),
      unread => Unread, stopped_us => Stopped div 1000, persistent_terms => Terms, persistent_term_bytes => TermBytes}.

%% From the application controller's own table, see applications/0; preloaded modules count as `erts'.
applications_of_modules() ->
    Loaded = ets:select(ac_tab, [{{{loaded, '$1'}, '_'}, [], ['$1']}]),
    Brought = maps:from_list([{bin(M), <<"erts">>} || M <- erlang:pre_loaded()]),
    lists:foldl(fun(App, All) ->
                    case application:get_key(App, modules) of
                        {ok, Modules} -> maps:merge(All, maps:from_list([{bin(M), bin(App)} || M <- Modules]));
                        undefined -> All
                    end
                end, Brought, Loaded).

%% A name may contain spaces within quotes; the numbers are at the end. No atom is created from it.
add_module(Line, Applications, {Sums, Unread}) ->
    try
        {Name, Size, Old} = case lists:reverse(binary:split(Line, <<" ">>, [global])) of
                                [<<"old)">>, Opened, S | N] -> {N, S, binary:part(Opened, 1, byte_size(Opened) - 1)};
                                [S | N] -> {N, S, <<"0">>}
                            end,
        [Bytes, OldBytes] = [binary_to_integer(B) || B <- [Size, Old]],
        true = Name =/= [] andalso Bytes >= 0 andalso OldBytes >= 0,
        App = maps:get(unquoted(iolist_to_binary(lists:join(<<" ">>, lists:reverse(Name)))), Applications, <<>>),
        {Count0, Bytes0, Old0} = maps:get(App, Sums, {0, 0, 0}),
        {Sums#{App => {Count0 + 1, Bytes0 + Bytes, Old0 + OldBytes}}, Unread}
    catch
        error:_ -> {Sums, Unread + 1}
    end.

unquoted(Name) ->
    case byte_size(Name) > 1 andalso binary:first(Name) =:= $' andalso binary:last(Name) =:= $' of
        true -> binary:part(Name, 1, byte_size(Name) - 2);
        false -> Name
    end.
