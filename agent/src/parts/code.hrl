%% `code_memory': how much memory the code of each application takes. Listing the modules stops all schedulers for a moment, so it
%% is done only where every scheduler answers.

%% While the code of all modules is listed, or a system_monitor is set, the VM stands still: neither is done where a scheduler does not
%% answer within this time.
-define(PROBE_NS, 100000000).
-define(MAX_MODULES, 100000).

%% The one source of how large each module is lets no other thread run meanwhile, and waits for all of them to come to rest first. With
%% a scheduler that is inside a long NIF all others would wait for that, so they are asked something else before, which does no harm.
code_memory(Top, Params) ->
    Until = until(code_memory, Params),
    schedulers_answer() orelse error(a_scheduler_does_not_answer),
    case aside(fun() -> loaded(Top) end, Until) of
        {ok, Value} -> Value;
        Why -> error({not_listed, Why})
    end.

%% This asks all of them, and stops none.
schedulers_answer() ->
    Probe = fun() -> erlang:statistics(garbage_collection) end,
    case aside(Probe, now_ns() + ?PROBE_NS, [{priority, high}, max_words(?ASIDE_WORDS)]) of
        {ok, _} -> true;
        _ -> false
    end.

%% Lines of the form `module 123' or `module 123 (45 old)' behind two lines of sums.
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

%% From the application controller's own table, see applications/0; the modules that the VM brings are of no application.
applications_of_modules() ->
    Loaded = ets:select(ac_tab, [{{{loaded, '$1'}, '_'}, [], ['$1']}]),
    Brought = maps:from_list([{bin(M), <<"erts">>} || M <- erlang:pre_loaded()]),
    lists:foldl(fun(App, All) ->
                    case application:get_key(App, modules) of
                        {ok, Modules} -> maps:merge(All, maps:from_list([{bin(M), bin(App)} || M <- Modules]));
                        undefined -> All
                    end
                end, Brought, Loaded).

%% A name may have spaces, within quotes; the numbers stand at the end. No atom is made of it.
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
