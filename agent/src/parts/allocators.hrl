%% `allocators': the VM's memory allocators, one row of numbers for each instance. The VM's own dump is 1 MB of terms with 32
%% schedulers.

allocators() ->
    All = [{A, erlang:system_info({allocator, A})} || A <- erlang:system_info(alloc_util_allocators)],
    Enabled = [{A, Instances} || {A, [_ | _] = Instances} <- All],
    #{disabled => [bin(A) || {A, false} <- All],
      instances => [instance(A, Number, Data) || {A, Instances} <- Enabled, {instance, Number, Data} <- Instances],
      foreign => foreign(Enabled),
      fixed => fixed(),
      mseg => [mseg(Number, Data) || {instance, Number, Data} <- system_list({allocator, mseg_alloc})],
      mmap => [mmap(Kind, Data) || {Kind, Data} <- system_list({allocator, erts_mmap})]}.

system_list(Key) ->
    case catch erlang:system_info(Key) of List when is_list(List) -> List; _ -> [] end.

%% {Allocator, Instance, Mbcs, Pool, Sbcs, Calls}; blocks are all in the carriers, including foreign ones.
instance(Allocator, Number, Data) ->
    {bin(Allocator), Number, carriers(mbcs, Data), carriers(mbcs_pool, Data), carriers(sbcs, Data),
     calls(proplists:get_value(calls, Data, []))}.

%% {BlockCount, BlockBytes, Carriers, CarrierBytes, BlockBytesMax, CarriersMax, CarrierBytesMax, MsegCarriers, MsegBytes};
%% maxima since the start, 0 if the VM keeps none (pool).
carriers(Kind, Data) ->
    Set = proplists:get_value(Kind, Data, []),
    Blocks = [Sizes || {_, Sizes} <- proplists:get_value(blocks, Set, [])],
    Sum = fun(Key, Position) ->
              lists:sum([element(Position, E)
                         || Sizes <- Blocks, E <- [lists:keyfind(Key, 1, Sizes)], tuple_size(E) >= Position])
          end,
    {Carriers, CarriersMax} = now_and_max(carriers, Set),
    {Bytes, BytesMax} = now_and_max(carriers_size, Set),
    {Sum(count, 2), Sum(size, 2), Carriers, Bytes, Sum(size, 4), CarriersMax, BytesMax,
     proplists:get_value(mseg_alloc_carriers, Set, 0), proplists:get_value(mseg_alloc_carriers_size, Set, 0)}.

now_and_max(Key, Set) ->
    case lists:keyfind(Key, 1, Set) of
        {_, Now, _, Max} -> {Now, Max};
        {_, Now} -> {signed(Now), 0};
        false -> {0, 0}
    end.

%% Before ERTS 15.1, carrier walks decrease the VM's unsigned count of pooled carriers, possibly below 0.
signed(N) when N >= 1 bsl 63 -> N - (1 bsl 64);
signed(N) -> N.

%% {Alloc, Free, Realloc, MsegAlloc, MsegDealloc, MsegRealloc, SysAlloc, SysFree, SysRealloc}; always in this order.
calls(Calls) ->
    list_to_tuple([Giga * 1000000000 + Rest || {_, Giga, Rest} <- Calls]).

%% Blocks of one allocator in carriers of another (22 and 23 share one pool; later only with +M<S>cp), summed.
foreign(Allocators) ->
    Blocks = [{{bin(Allocator), bin(Of)}, Size}
              || {Allocator, Instances} <- Allocators, {instance, _, Data} <- Instances,
                 Kind <- [mbcs, mbcs_pool, sbcs],
                 {Of, Sizes} <- proplists:get_value(blocks, proplists:get_value(Kind, Data, []), []), Of =/= Allocator,
                 Size <- [element(2, lists:keyfind(size, 1, Sizes))], Size > 0],
    [{In, Of, Bytes} || {{In, Of}, Bytes} <- maps:to_list(lists:foldl(fun({Key, Size}, Map) ->
                                                                          merge(Key, Size, fun erlang:'+'/2, Map)
                                                                      end, #{}, Blocks))].

%% {Kind, Bytes} in fix_alloc: monitor, link, bif_timer, proc, msg_ref ... Each scheduler reports what it has allocated and freed; only the
%% sum over all is meaningful, and the numbers wrap. erlang:memory/0 uses the same request.
fixed() ->
    Ref = make_ref(),
    case catch erlang:system_info({memory_internal, Ref, [fix_alloc]}) of
        true -> [{bin(Kind), Bytes} || {Kind, Bytes} <- lists:sort(maps:to_list(fixed(erlang:system_info(schedulers), Ref, #{}, 0)))];
        _ -> []
    end.

fixed(0, _, Sums, 0) -> Sums;
fixed(0, _, Sums, Mask) -> maps:map(fun(_, Bytes) -> Bytes band Mask end, Sums);
fixed(Schedulers, Ref, Sums, Mask) ->
    receive
        {Ref, _, Reply} ->
            Types = [Of || {fix_alloc, _, Data} <- Reply, Of <- [lists:keyfind(fix_types, 1, Data)], Of =/= false],
            Add = fun({Kind, _, Used}, Map) -> merge(Kind, Used, fun erlang:'+'/2, Map) end,
            Masks = [M || {fix_types, M, _} <- Types],
            fixed(Schedulers - 1, Ref, lists:foldl(Add, Sums, lists:append([element(tuple_size(Of), Of) || Of <- Types])),
                  lists:max([Mask | Masks]))
    end.

%% {Instance, CachedSegments, CacheHits, Segments, SegmentsMax, SegmentBytes, SegmentBytesMax, Alloc, Dealloc, Realloc,
%% Create, Destroy}, summed over the kinds of memory.
mseg(Number, Data) ->
    Kinds = [{proplists:get_value(status, Kind, []), proplists:get_value(calls, Kind, [])} || {memkind, Kind} <- Data],
    Status = fun(Key, Position) ->
                 lists:sum([element(Position, E) || {S, _} <- Kinds, E <- [lists:keyfind(Key, 1, S)], E =/= false])
             end,
    Calls = fun(Key) ->
                lists:sum([Giga * 1000000000 + Rest || {_, C} <- Kinds, {K, Giga, Rest} <- C, K =:= Key])
            end,
    {Number, Status(cached_segments, 2), Status(cache_hits, 2), Status(segments, 2), Status(segments, 4),
     Status(segments_size, 2), Status(segments_size, 4), Calls(mseg_alloc), Calls(mseg_dealloc), Calls(mseg_realloc),
     Calls(mseg_create), Calls(mseg_destroy)}.

%% Default and literal memory: #{kind, os_bytes, and for a super carrier total, used (also of its two areas), free segments}.
mmap(Kind, Data) ->
    Part = fun(Key, Name) -> proplists:get_value(Name, proplists:get_value(Key, Data, []), []) end,
    Numbers = [{os_bytes, proplists:get_value(used, Part(os, sizes), absent)}]
        ++ [{K, proplists:get_value(From, Part(supercarrier, sizes), absent)}
            || {K, From} <- [{total_bytes, total}, {sa_bytes, total_sa}, {sua_bytes, total_sua}, {used_bytes, used},
                             {used_sa_bytes, used_sa}, {used_sua_bytes, used_sua}]]
        ++ [{K, proplists:get_value(From, Part(supercarrier, free_segs), absent)}
            || {K, From} <- [{free_segments, used}, {free_segments_max, max}, {free_segments_reserved, reserved}]],
    maps:from_list([{kind, bin(Kind)} | [{K, V} || {K, V} <- Numbers, V =/= absent]]).
