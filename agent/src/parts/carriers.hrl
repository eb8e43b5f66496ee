%% `carriers' and `allocations': the content of the allocators' carriers. The VM walks all carriers of one instance, block by
%% block, on the thread that the instance belongs to (erl_alloc_util.c, blockscan). agent/README.md says how long that occupies the
%% thread, and what is wrong with it before ERTS 15.1.

%% Pause after an instance that took longer than this.
-define(STEP_NS, 500000).
%% The VM visits at most this many blocks of one carrier, and this many more between two pauses (erl_alloc_util.c, 23 to 29).
-define(BLOCKS_OF_ONE, 16000).
-define(BLOCKS_BETWEEN, 8000).
%% Minimum cost of a block that is in no cache, and additional cost of an instance.
-define(BLOCK_NS, 200).
-define(INSTANCE_NS, 100000).
%% Minimum number of blocks to trust a measured speed of this node above that; with fewer, most may be in a cache.
-define(MIN_MEASURED_BLOCKS, 100000).
%% The instance used for calibration: one with at most this many blocks, and if possible at least this many bytes.
-define(CHEAP_BLOCKS, 20000).
-define(CHEAP_BYTES, 8388608).
%% Before ERTS 15.1, a walk that pauses within the pool leaves the VM's count of pooled carriers permanently wrong. It does not pause if
%% the pool has fewer blocks than this, below the VM's limit, since some may be added during the walk.
-define(POOL_BLOCKS, 6000).
%% An instance with more carriers is not walked: each takes 270 bytes of the answer.
-define(MAX_CARRIERS, 100000).
-define(MAX_CARRIER_ROWS, 2000).
%% Histograms: number of bins, and the start that the VM is given.
-define(FREE_SIZES, 14).
-define(FREE_START, 512).
-define(TAGGED_SIZES, 24).
-define(TAGGED_START, 128).

%% blocks: maximum number of blocks to visit, used and free (free blocks are never adjacent); pool: those of them in the pool.
%% tagged: whether the allocator's blocks have tags; holds: the allocators whose blocks are in its carriers.
-record(instance, {allocator, number, carriers, bytes, blocks, pool, tagged, holds}).

%% done: {instances, carriers, bytes, us}; seen: {blocks, ns} from which the cost of a block is known; failures: instances without
%% an answer in time; after two of them the walk ends.
-record(walk, {until, kind, walk_pools, measured = #{}, seen = {0, 0}, done = {0, 0, 0, 0}, skipped = [], failures = 0, found = #{}}).

walk_carriers(Params) ->
    Instances = instances(Params),
    Begun = begin_walk(carriers, Params),
    {First, Rest, Known} = measure(Instances, Begun),
    Estimate = estimate(First ++ Rest, Known),
    case Params of
        #{estimate := true} -> #{estimate => Estimate};
        _ ->
            Walk = lists:foldl(fun walk_instance/2, Known, Rest),
            Rows = carrier_rows(Walk#walk.found),
            {Kept, Others} = lists:split(min(length(Rows), ?MAX_CARRIER_ROWS), Rows),
            (walked(Walk))#{estimate => Estimate, rows => Kept, free_bounds => free_bounds(Rows),
                            left_out => {lists:sum([element(6, R) || R <- Others]), lists:sum([element(7, R) || R <- Others])}}
    end.

begin_walk(Kind, Params) ->
    #walk{until = until(Kind, Params), kind = Kind,
          walk_pools = maps:get(pools, Params, false) =:= true orelse erts_version() >= [15, 1]}.

erts_version() ->
    try [list_to_integer(Part) || Part <- string:lexemes(erlang:system_info(version), ".")] catch error:_ -> [] end.

%% Instances with carriers of the requested allocators; those with the fewest blocks per byte first, so that the most bytes are walked if
%% the time does not suffice.
instances(Params) ->
    Asked = maps:get(allocators, Params, all),
    All = [instance_of(A, Number, Data)
           || A <- erlang:system_info(alloc_util_allocators), Asked =:= all orelse lists:member(bin(A), Asked),
              {instance, Number, Data} <- system_list({allocator, A})],
    ByDensity = [{I#instance.blocks * 1000000 div I#instance.bytes, I} || #instance{bytes = Bytes} = I <- All, Bytes > 0],
    [I || {_, I} <- lists:sort(ByDensity)].

instance_of(Allocator, Number, Data) ->
    [Mbcs, Pool, Sbcs] = [carriers(Set, Data) || Set <- [mbcs, mbcs_pool, sbcs]],
    Sum = fun(Place) -> lists:sum([max(0, element(Place, Set)) || Set <- [Mbcs, Pool, Sbcs]]) end,
    %% A pool's count of carriers may be wrong, that of blocks is right.
    [Own, Pooled] = [min(2 * Blocks + max(0, Carriers), ?BLOCKS_OF_ONE * max(1, Carriers))
                     || Set <- [Mbcs, Pool], Blocks <- [element(1, Set)], Carriers <- [element(3, Set)]],
    #instance{allocator = Allocator, number = Number, carriers = Sum(3), bytes = Sum(4),
              blocks = Own + Pooled + max(0, element(3, Sbcs)), pool = 2 * element(1, Pool),
              tagged = proplists:get_value(atags, proplists:get_value(options, Data, []), false) =:= true,
              holds = [Of || Set <- [mbcs, mbcs_pool, sbcs], {Of, _} <- proplists:get_value(blocks, proplists:get_value(Set, Data, []), [])]}.

%% Walks a cheap instance to measure the cost of a block on this node: {[that instance], the others, Walk}.
measure(Instances, Walk) ->
    Cheap = [I || #instance{blocks = Blocks} = I <- Instances, Blocks =< ?CHEAP_BLOCKS, may_walk(I, Walk) =:= yes],
    Large = [I || #instance{bytes = Bytes} = I <- Cheap, Bytes >= ?CHEAP_BYTES],
    case lists:reverse(lists:keysort(#instance.blocks, case Large of [] -> Cheap; _ -> Large end)) of
        [] -> {[], Instances, Walk};
        [First | _] ->
            #walk{done = {Count, Carriers, Bytes, Us}, seen = {Blocks, _}} = Known = walk_instance(First, Walk),
            Measured = #{allocator => bin(First#instance.allocator), instance => First#instance.number, carriers => Carriers,
                         bytes => Bytes, blocks => Blocks, us => Us},
            {[First], lists:delete(First, Instances),
             case Count of 0 -> Known; _ -> Known#walk{measured = Measured} end}
    end.

%% Duration of walking all instances, and longest time for which a thread is occupied without a pause.
estimate(Instances, #walk{measured = Measured} = Walk) ->
    {Walked, Skipped} = lists:partition(fun(I) -> may_walk(I, Walk) =:= yes end, Instances),
    Sum = fun(Place) -> lists:sum([element(Place, I) || I <- Walked]) end,
    Max = lists:max([0 | [I#instance.blocks || I <- Walked]]),
    #{instances => length(Walked), carriers => Sum(#instance.carriers), bytes => Sum(#instance.bytes), blocks => Sum(#instance.blocks),
      us => lists:sum([cost_of(I, Walk) || I <- Walked]) div 1000,
      hold_us => min(Max, ?BLOCKS_BETWEEN + ?BLOCKS_OF_ONE) * block_ns(Walk) div 1000,
      measured => Measured,
      skipped => [skipped_row(I, may_walk(I, Walk)) || I <- Skipped]}.

%% Nanoseconds.
cost_of(#instance{blocks = Blocks}, Walk) -> ?INSTANCE_NS + Blocks * block_ns(Walk).

%% Few blocks say little: most of their time may be the way to the thread and back, and they may all be in a cache.
block_ns(#walk{seen = {Blocks, Ns}}) when Blocks >= ?MIN_MEASURED_BLOCKS -> Ns div Blocks;
block_ns(#walk{seen = {Blocks, Ns}}) when Blocks >= 1000 -> max(?BLOCK_NS, Ns div Blocks);
block_ns(_) -> ?BLOCK_NS.

may_walk(#instance{pool = Pool}, #walk{walk_pools = false}) when Pool > ?POOL_BLOCKS -> pool;
may_walk(#instance{carriers = Carriers}, _) when Carriers > ?MAX_CARRIERS -> many;
may_walk(_, _) -> yes.

walk_instance(Instance, #walk{kind = Kind, until = Until, failures = Failures} = Walk) ->
    Cost = cost_of(Instance, Walk),
    Begin = now_ns(),
    case may_walk(Instance, Walk) of
        yes when Failures >= 2 -> skip(Instance, no_answer, Walk);
        yes when Begin + Cost > Until -> skip(Instance, limit, Walk);
        yes ->
            Gathered = run_isolated(fun() -> gather(Kind, Instance) end, min(Until, Begin + 4 * Cost + 1000000000)),
            End = now_ns(),
            End - Begin > ?STEP_NS andalso receive after ?STEP_PAUSE_NS div 1000000 -> ok end,
            case Gathered of
                {ok, {Ns, Blocks, Carriers, Bytes, Found}} ->
                    #walk{seen = {AllBlocks, AllNs}, done = {Instances, AllCarriers, AllBytes, Us}} = Walk,
                    Walk#walk{seen = {AllBlocks + Blocks, AllNs + Ns},
                              done = {Instances + 1, AllCarriers + Carriers, AllBytes + Bytes, Us + Ns div 1000},
                              found = maps:fold(fun(Key, Row, All) -> add_row(Key, Row, All) end, Walk#walk.found, Found)};
                late when End >= Until -> skip(Instance, limit, Walk);
                late -> skip(Instance, no_answer, Walk#walk{failures = Failures + 1});
                large -> skip(Instance, many, Walk);
                {failed, _} -> skip(Instance, refused, Walk)
            end;
        Why -> skip(Instance, Why, Walk)
    end.

skip(Instance, Why, #walk{skipped = Skipped} = Walk) ->
    Walk#walk{skipped = [skipped_row(Instance, Why) | Skipped]}.

skipped_row(#instance{allocator = Allocator, number = Number, carriers = Carriers, bytes = Bytes, blocks = Blocks}, Why) ->
    {bin(Allocator), Number, Why, Carriers, Bytes, Blocks}.

walked(#walk{done = {Instances, Carriers, Bytes, Us}, skipped = Skipped}) ->
    #{walked => #{instances => Instances, carriers => Carriers, bytes => Bytes, us => Us}, skipped => lists:reverse(Skipped)}.

%% In the separate process: walks one instance and adds up the result: {nanoseconds, blocks, carriers, bytes, rows}.
gather(carriers, #instance{allocator = Allocator, number = Number}) ->
    {Ns, {Carriers}} = gathered(fun erts_internal:gather_carrier_info/1, {Allocator, Number, ?FREE_SIZES, ?FREE_START}),
    add_carriers(Carriers, Ns, 0, 0, 0, #{});
%% The VM does not report these numbers here, so those counted before are used.
gather(allocations, #instance{allocator = Allocator, number = Number, carriers = Carriers, bytes = Bytes, blocks = Blocks}) ->
    {Ns, {Unscanned, Tags}} = gathered(fun erts_internal:gather_alloc_histograms/1, {Allocator, Number, ?TAGGED_SIZES, ?TAGGED_START}),
    Rows = lists:foldl(fun({Origin, Type, Sizes}, All) -> add_row({origin(Origin), bin(Type)}, tuple_to_list(Sizes), All) end,
                       #{unscanned => [Unscanned]}, Tags),
    {Ns, Blocks, Carriers, Bytes, Rows}.

%% A driver, a NIF library, or `system'; also a process or a port if flags request it, which ours do not.
origin(Atom) when is_atom(Atom) -> bin(Atom);
origin(Other) -> id(Other).

%% Since OTP 27 the tuple has flags, and without them the call fails with badarg. Before, the size of the tuple is not checked, and any term in
%% the place of the reference is taken for one, which crashes the VM: so the short tuple has to be tried first. If that fails for another
%% reason, the long one fails, too, before the reference is used.
gathered(Gather, {Allocator, Number, Sizes, Start}) ->
    Ref = make_ref(),
    Begin = now_ns(),
    1 = try Gather({Allocator, Number, Sizes, Start, Ref})
        catch error:badarg -> Gather({Allocator, Number, Sizes, Start, 0, Ref})
        end,
    receive
        {Ref, Carriers} -> {now_ns() - Begin, {Carriers}};
        {Ref, Unscanned, Tags} -> {now_ns() - Begin, {Unscanned, Tags}}
    end.

add_carriers([{Allocator, InPool, Size, Unscanned, Blocks, Free} | Carriers], Ns, AllBlocks, Count, Bytes, Rows) ->
    FreeList = tuple_to_list(Free),
    FreeCount = lists:sum(FreeList),
    %% A singleblock carrier has nothing but its block, not even a header, by the VM's account.
    Single = FreeCount =:= 0 andalso Unscanned =:= 0 andalso case Blocks of [{_, 1, Size}] -> true; _ -> false end,
    Used = lists:sum([S || {_, _, S} <- Blocks]),
    Visited = case Unscanned of
                 0 -> lists:sum([C || {_, C, _} <- Blocks]) + FreeCount;
                 _ -> ?BLOCKS_OF_ONE
             end,
    Key = {Allocator, InPool, Single, log2(Size), 10 * Used div Size},
    Row = {1, Size, Unscanned, maps:from_list([{Of, {C, S}} || {Of, C, S} <- Blocks]), FreeList},
    add_carriers(Carriers, Ns, AllBlocks + case Single of true -> 1; false -> Visited end, Count + 1, Bytes + Size,
                 add_row(Key, Row, Rows));
add_carriers([], Ns, Blocks, Count, Bytes, Rows) ->
    {Ns, Blocks, Count, Bytes, Rows}.

%% A row of allocations is a plain histogram.
add_row(Key, Row, Rows) when is_list(Row) ->
    case Rows of
        #{Key := Before} -> Rows#{Key := add_lists(Before, Row)};
        _ -> Rows#{Key => Row}
    end;
add_row(Key, {Count, Bytes, Unscanned, Blocks, Free} = Row, Rows) ->
    case Rows of
        #{Key := {Count0, Bytes0, Unscanned0, Blocks0, Free0}} ->
            Joined = maps:fold(fun(Of, {C, S}, All) ->
                                   {C0, S0} = maps:get(Of, All, {0, 0}),
                                   All#{Of => {C0 + C, S0 + S}}
                               end, Blocks0, Blocks),
            Rows#{Key := {Count0 + Count, Bytes0 + Bytes, Unscanned0 + Unscanned, Joined, add_lists(Free0, Free)}};
        _ -> Rows#{Key => Row}
    end.

add_lists(A, B) -> lists:zipwith(fun erlang:'+'/2, A, B).

%% The exponent of the highest power of two that is not larger.
log2(N) when N > 1 -> 1 + log2(N bsr 1);
log2(_) -> 0.

%% Rows with the most bytes first.
carrier_rows(Found) ->
    Rows = [{bin(Allocator), InPool, Single, Log2, Tenths, Count, Bytes, Unscanned,
             [{bin(Of), C, S} || {Of, {C, S}} <- maps:to_list(Blocks)], Free}
            || {{Allocator, InPool, Single, Log2, Tenths}, {Count, Bytes, Unscanned, Blocks, Free}} <- maps:to_list(Found)],
    lists:reverse(lists:keysort(7, Rows)).

%% The smallest size of each bin in a histogram of free blocks. Until OTP 25, a bin ends at a power of two times twice the start, less
%% twice the start. Since 27 it ends at a power of two, and the first bin stays empty; by that, 26 is recognized.
free_bounds(Rows) ->
    Release = list_to_integer(erlang:system_info(otp_release)),
    Unit = 2 * ?FREE_START,
    case Release >= 27 orelse Release =:= 26 andalso lists:all(fun(Row) -> hd(element(10, Row)) =:= 0 end, Rows) of
        true -> [0, 0 | [Unit bsl (Place - 2) || Place <- lists:seq(2, ?FREE_SIZES - 1)]];
        false -> [((1 bsl Place) - 1) * Unit || Place <- lists:seq(0, ?FREE_SIZES - 1)]
    end.

%% Blocks by allocating code and type, as far as they have tags (+M<S>atags; by default those of binaries and drivers). The VM counts them by
%% size, so their bytes are approximate.
walk_allocations(Top, Params) ->
    All = instances(Params),
    Tagged = lists:usort([A || #instance{tagged = true, allocator = A} <- All]),
    Tagged =/= [] orelse throw(unsupported),
    %% If allocators share a pool (22, 23), most blocks may be in another allocator's carriers.
    Instances = [I || #instance{holds = Holds} = I <- All, lists:any(fun(Of) -> lists:member(Of, Tagged) end, Holds)],
    {First, Rest, Known} = measure(Instances, begin_walk(allocations, Params)),
    #walk{found = Found} = Walk = lists:foldl(fun walk_instance/2, Known, Rest),
    Bounds = tagged_bounds(),
    Rows = lists:reverse(lists:keysort(4, [{Origin, Type, lists:sum(Sizes), about_bytes(Sizes, Bounds), Sizes}
                                           || {{Origin, Type}, Sizes} <- maps:to_list(Found)])),
    {Kept, Others} = lists:split(min(length(Rows), Top), Rows),
    (walked(Walk))#{estimate => estimate(First ++ Rest, Known), rows => Kept, bounds => Bounds,
                    tagged => [bin(A) || A <- Tagged],
                    unscanned_bytes => lists:sum(maps:get(unscanned, Found, [])),
                    left_out => {length(Others), lists:sum([element(3, R) || R <- Others]), lists:sum([element(4, R) || R <- Others])}}.

%% The smallest size of each bin. Until OTP 26, a bin ends at a power of two times the start, less the start; since 27 at a power of two
%% times the start.
tagged_bounds() ->
    case list_to_integer(erlang:system_info(otp_release)) >= 27 of
        true -> [0 | [?TAGGED_START bsl (Place - 1) || Place <- lists:seq(1, ?TAGGED_SIZES - 1)]];
        false -> [((1 bsl Place) - 1) * ?TAGGED_START || Place <- lists:seq(0, ?TAGGED_SIZES - 1)]
    end.

%% As if all blocks had the size of the middle of their bin.
about_bytes([Count | Counts], [From, To | Bounds]) -> Count * (From + To) div 2 + about_bytes(Counts, [To | Bounds]);
about_bytes([Count], [From]) -> Count * From * 3 div 2.
