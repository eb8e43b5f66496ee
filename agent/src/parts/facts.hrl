%% Facts: properties that do not change while the node runs, read once per client.

%% Nothing here waits for another process or for a scheduler: on an overloaded node each such step takes a third of a second or
%% more, and without the facts the other items can hardly be interpreted.
facts(#state{features = Features}) ->
    Info = fun(Key) -> try erlang:system_info(Key) catch error:_ -> absent end end,
    {fullsweep_after, Fullsweep} = Info(fullsweep_after),
    {min_heap_size, MinHeap} = Info(min_heap_size),
    {min_bin_vheap_size, MinVheap} = Info(min_bin_vheap_size),
    Clock = Info(os_monotonic_time_source),
    Allocators = Info(alloc_util_allocators),
    {_, _, _, Settings} = Info(allocator),
    IsDisabled = fun(A) -> proplists:get_value(e, proplists:get_value(A, Settings, [])) =:= false end,
    Arguments = Info(emu_args),
    Facts =
        #{otp_release => bin(Info(otp_release)), erts_version => bin(Info(version)),
          system_version => string:trim(bin(Info(system_version))),
          system_architecture => bin(Info(system_architecture)),
          emu_type => emu_text(Info(emu_type)), emu_flavor => emu_text(Info(emu_flavor)), build_type => bin(Info(build_type)),
          word_bytes => Info(wordsize), os_pid => list_to_integer(os:getpid()), os_type => os_type(),
          node => bin(node()), creation => Info(creation),
          start_ns => erlang:convert_time_unit(Info(start_time), native, nanosecond),
          now_ns => now_ns(), now_system_us => erlang:system_time(microsecond),
          time_offset_ns => erlang:time_offset(nanosecond),
          native_per_s => erlang:convert_time_unit(1, second, native),
          perf_counter_per_s => erlang:convert_time_unit(1, second, perf_counter),
          emu_args => [bin(A) || A <- lists:takewhile(fun(A) -> A =/= "--" end, Arguments)],
          init_args => init_args(lists:dropwhile(fun(A) -> A =/= "--" end, Arguments)), env => environment(Info(otp_release)),
          schedulers => Info(schedulers), schedulers_online => Info(schedulers_online),
          dirty_cpu_schedulers => Info(dirty_cpu_schedulers),
          dirty_cpu_schedulers_online => Info(dirty_cpu_schedulers_online),
          dirty_io_schedulers => Info(dirty_io_schedulers), async_threads => Info(thread_pool_size),
          scheduler_bind_type => bin(Info(scheduler_bind_type)),
          scheduler_bindings => tuple_to_list(Info(scheduler_bindings)),
          logical_processors => Info(logical_processors),
          logical_processors_online => Info(logical_processors_online),
          logical_processors_available => Info(logical_processors_available), cpu_quota => Info(cpu_quota),
          process_limit => Info(process_limit), port_limit => Info(port_limit), atom_limit => Info(atom_limit),
          ets_limit => Info(ets_limit),
          time_correction => Info(time_correction), time_warp_mode => bin(Info(time_warp_mode)),
          os_monotonic_time_source => bin(proplists:get_value(clock_id, Clock,
                                                              proplists:get_value(function, Clock, absent))),
          kernel_poll => lists:all(fun(Set) -> proplists:get_value(fallback, Set) =:= true
                                                   orelse proplists:get_value(kernel_poll, Set) =/= false
                                   end, Info(check_io)),
          message_queue_data => bin(Info(message_queue_data)), fullsweep_after => Fullsweep,
          min_heap_size_words => MinHeap, min_bin_vheap_size_words => MinVheap,
          max_heap_size_words => max_heap(Info(max_heap_size)),
          port_parallelism => Info(port_parallelism), dist_buf_busy_limit_bytes => Info(dist_buf_busy_limit),
          async_dist => Info(async_dist),
          alloc_util_allocators => [bin(A) || A <- Allocators],
          disabled_allocators => [bin(A) || A <- Allocators, IsDisabled(A)],
          applications => applications(), nifs => nifs(), log_handlers => log_handlers(),
          memory_watermark_set => watermark(rabbit(vm_memory_high_watermark)),
          memory_total_set => memory_size(rabbit(total_memory_available_override_value)),
          connected_nodes => length(nodes(connected)), hidden_nodes => length(nodes(hidden)),
          known_nodes => length(nodes(known)),
          multi_scheduling => bin(Info(multi_scheduling)),
          features => [bin(F) || F <- Features]
              ++ [<<"trace_sessions">> || list_to_integer(Info(otp_release)) >= 27]
              ++ [<<"processes_iterator">> || erlang:function_exported(erlang, processes_iterator, 0)]},
    maps:filter(fun(_, V) -> V =/= absent end, Facts).

%% Some NIFs of each module in system_info(taints), which excludes those that come with the emulator; crypto is left out, too.
-define(NIFS, 20).
-define(NIFS_OF_ONE, 5).

nifs() ->
    Modules = try erlang:system_info(taints) catch error:_ -> [] end,
    Functions = fun(M) -> try erlang:get_module_info(M, nifs) catch error:_ -> [] end end,
    lists:sublist([mfa({M, F, A}) || M <- Modules, M =/= crypto, M =/= asn1rt_nif,
                                     {F, A} <- lists:sublist(Functions(M), ?NIFS_OF_ONE)], ?NIFS).

%% Settings of log handlers with overload protection (logger_olp), from logger's own table, of which nothing else is copied. Keys and
%% form of the configuration are internal to OTP, and the same from 23 to 29.
-define(LOG_HANDLERS, 20).

log_handlers() ->
    Config = {map_get, config, '$2'},
    Setting = fun(Key) -> {map_get, Key, Config} end,
    Spec = [{{{'_', '$1'}, '$2'}, [{is_map_key, config, '$2'}, {is_map_key, olp, Config}, {is_map_key, burst_limit_max_count, Config}],
             [{{{element, 1, Setting(olp)}, '$1', Setting(sync_mode_qlen), Setting(drop_mode_qlen), Setting(flush_qlen),
                Setting(burst_limit_enable), Setting(burst_limit_max_count)}}]}],
    Found = try ets:select(logger, Spec, ?LOG_HANDLERS) catch error:badarg -> '$end_of_table' end,
    Handlers = case Found of {Some, _} -> Some; '$end_of_table' -> [] end,
    IsCount = fun(N) -> is_integer(N) andalso N >= 0 andalso N < 1 bsl 62 end,
    [{bin(Name), bin(Id), Sync, Drop, Flush, Limited, Burst}
     || {Name, Id, Sync, Drop, Flush, Limited, Burst} <- Handlers, is_atom(Name), is_atom(Id), is_boolean(Limited),
        lists:all(IsCount, [Sync, Drop, Flush, Burst])].

emu_text(absent) -> absent;
emu_text(Atom) -> bin(Atom).

os_type() ->
    {Family, Name} = os:type(),
    <<(bin(Family))/binary, "/", (bin(Name))/binary>>.

max_heap({max_heap_size, Heap}) -> max_heap(Heap);
max_heap(#{size := Words}) -> Words;
max_heap(Words) when is_integer(Words) -> Words;
max_heap(_) -> absent.

%% From the application controller's own table: a call would wait for the controller, which may be blocked by the start of an
%% application. Only names and versions are copied.
applications() ->
    Running = ets:select(ac_tab, [{{{application_master, '$1'}, '_'}, [], ['$1']}]),
    Loaded = ets:select(ac_tab, [{{{loaded, '$1'}, '$2'}, [], [{{'$1', {element, 6, '$2'}}}]}]),
    [{bin(App), bin(Version), lists:member(App, Running)} || {App, Version} <- lists:sort(lists:sublist(Loaded, 500))].

%% RabbitMQ's memory high watermark, a share or a size, and the total memory that it refers to, as configured. No other parameters of
%% applications are read. Values that are neither a number nor a size are not sent.
watermark({relative, Share}) -> share(Share);
watermark({absolute, Size}) -> memory_size(Size);
watermark(Share) -> share(Share).

rabbit(Parameter) ->
    case ets:lookup(ac_tab, {env, rabbit, Parameter}) of
        [{_, Value}] -> Value;
        [] -> absent
    end.

share(Share) when is_number(Share), abs(Share) < 1000 -> float_to_binary(float(Share), [{decimals, 6}]);
share(_) -> absent.

memory_size(Bytes) when is_integer(Bytes), abs(Bytes) < 1 bsl 62 -> integer_to_binary(Bytes);
memory_size(Text) when is_list(Text); is_binary(Text) ->
    case re:run(bin(Text), "^[0-9]{1,18}[A-Za-z]{0,3}$", [{capture, none}]) of
        match -> bin(Text);
        nomatch -> absent
    end;
memory_size(_) -> absent.

%% The flags of init, as init:get_arguments/0 returns them. Only flags known to be harmless are sent: others may hold
%% secrets (-setcookie, application parameters, -eval). Text stays a list here, because OTP 29 cannot load some of the code that
%% OTP 25's compiler generates for binary patterns.
init_args(["-extra" | _]) -> [];
init_args([[$- | Flag] | Rest]) ->
    {Values, Next} = lists:splitwith(fun([$- | _]) -> false; (_) -> true end, Rest),
    [{bin(Flag), [bin(V) || V <- Kept]} || Kept <- harmless(Flag, Values)] ++ init_args(Next);
init_args([_ | Rest]) -> init_args(Rest);
init_args([]) -> [].

environment(Release) ->
    Flags = ["ERL_AFLAGS", "ERL_FLAGS", "ERL_ZFLAGS", "ERL_OTP" ++ Release ++ "_FLAGS"],
    Numbers = ["ERL_FULLSWEEP_AFTER", "ERL_MAX_PORTS", "ERL_MAX_ETS_TABLES", "ERL_THREAD_POOL_SIZE"],
    Set = fun(Names) -> [{Name, Value} || Name <- Names, Value <- [os:getenv(Name)], Value =/= false] end,
    [{bin(Name), [bin(Word) || Word <- flags(words(Value, [], []))]} || {Name, Value} <- Set(Flags)]
        ++ [{bin(Name), [bin(Value)]} || {Name, Value} <- Set(Numbers)].

%% The emulator flags in a list of arguments, with their values, and the harmless ones of the other flags. Arguments after `-extra' are
%% the program's own.
flags(["-extra" | _]) -> [];
flags([[Sign | Name] = Flag | Rest]) when Sign =:= $-; Sign =:= $+ ->
    {Values, Next} = lists:splitwith(fun([C | _]) -> C =/= $- andalso C =/= $+ end, Rest),
    Kept = case Sign of $+ -> [Values]; $- -> harmless(Name, Values) end,
    lists:append([[Flag | K] || K <- Kept]) ++ flags(Next);
flags([_ | Rest]) -> flags(Rest);
flags([]) -> [].

%% [Values] if the flag is harmless, or [].
harmless("kernel", Values) -> [kernel(Values)];
harmless(Flag, Values) ->
    [Values || lists:member(Flag, ["root", "bindir", "progname", "home", "boot", "config", "name", "sname", "noshell",
                                   "noinput", "detached", "hidden", "heart", "mode", "embedded", "start_epmd",
                                   "erl_epmd_port", "epmd_module", "proto_dist", "dist_listen", "connect_all",
                                   "emu_flavor", "emu_type", "smp", "args_file"])].

kernel([Key, Value | Rest]) ->
    Known = ["net_ticktime", "net_tickintensity", "net_setuptime", "dist_auto_connect", "connect_all",
             "inet_dist_listen_min", "inet_dist_listen_max", "inet_dist_use_interface", "inet_backend",
             "prevent_overlapping_partitions", "logger_level"],
    [Word || lists:member(Key, Known), Word <- [Key, Value]] ++ kernel(Rest);
kernel(_) -> [].

%% Splits words as erlexec does, with quotes.
words([Quote | Text], Word, Words) when Quote =:= $"; Quote =:= $' ->
    {Quoted, Rest} = lists:splitwith(fun(C) -> C =/= Quote end, Text),
    words(lists:nthtail(min(1, length(Rest)), Rest), lists:reverse(Quoted, Word), Words);
words([$\\, C | Text], Word, Words) -> words(Text, [C | Word], Words);
words([C | Text], Word, Words) when C =:= $\s; C =:= $\t; C =:= $\n; C =:= $\r -> words(Text, [], [Word | Words]);
words([C | Text], Word, Words) -> words(Text, [C | Word], Words);
words([], Word, Words) -> [lists:reverse(W) || W <- lists:reverse([Word | Words]), W =/= []].
