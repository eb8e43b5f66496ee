%% A process that keeps a large state on its heap and creates garbage at every request, with fullsweep_after so low that
%% every second to fourth GC copies the whole state. Healthy: the same state is in an ETS table, off the heap, and the
%% heap is large enough for a request's garbage, so that GCs are rare and copy hardly anything.
%%
%% On a host with more than two CPUs there is one such process per two CPUs, so that they have the same share of it.
%% Together they have as much state as one has otherwise: the GC time per request hardly depends on it, because a smaller
%% heap has less free space and is collected more often.
-module(lab_gc_share).

-export([start/1, establish/1]).

%% In words; below the 128 Ki words from which on dirty schedulers execute GCs.
-define(ROOMY, {min_heap_size, 100000}).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Collectors = lab:cores(Context) div 2,
    Entries = lab:int(Context, entries, 200000, 350000) div Collectors,
    FullsweepAfter = lab:int(Context, fullsweep_after, 1, 3),
    RequestMs = lab:int(Context, request_ms, 2, 4),
    Served = lab:counter(),
    Names = lab:names(Context, servers, lab:int(Context, servers, 3, 6) + Collectors - 1),
    {Sick, Others} = lists:split(Collectors, Names),
    Options = case lab:sick(Context) of true -> [{fullsweep_after, FullsweepAfter}]; false -> [?ROOMY] end,
    Pids = [
        proc_lib:spawn_opt(
            fun() ->
                true = register(Name, self()),
                State = state(lab:sick(Context), Name, Entries),
                %% Frees the garbage of building the state.
                true = erlang:garbage_collect(),
                serve(State, Entries, RequestMs, Served)
            end,
            [link | Options]
        )
     || Name <- Sick
    ],
    [
        proc_lib:spawn_opt(
            fun() ->
                true = register(Other, self()),
                serve({heap, #{}}, 100, 200, lab:counter())
            end,
            [link, ?ROOMY]
        )
     || Other <- Others
    ],
    HasState = fun(Pid) ->
        {garbage_collection_info, Info} = erlang:process_info(Pid, garbage_collection_info),
        proplists:get_value(heap_size, Info) + proplists:get_value(old_heap_size, Info) > 8 * Entries
    end,
    lab:wait_until(serves, fun() -> lab:total(Served) > 100 * Collectors end),
    lab:sick(Context) andalso lab:wait_until(state_on_heap, fun() -> lists:all(HasState, Pids) end),
    #{
        %% If there are several, none of them must be named.
        sick => case Sick of [Name] -> lab:culprit(Context, Name); _ -> none end,
        details => #{
            collectors => {list, Sick}, pids => {list, Pids}, servers => {list, lab:shuffle(Context, order, Names)},
            entries => Entries, fullsweep_after => FullsweepAfter, request_ms => RequestMs
        }
    }.

state(true, _, Entries) ->
    {heap, maps:from_list([entry(N) || N <- lists:seq(1, Entries)])};
state(false, Name, Entries) ->
    Table = ets:new(Name, [set, private]),
    [ets:insert(Table, entry(N)) || N <- lists:seq(1, Entries)],
    {ets, Table}.

entry(N) -> {N, {N, 2 * N, [N], unread}}.

%% A request looks up some entries, changes one, and creates much short-lived garbage.
serve(State, Entries, RequestMs, Served) ->
    lists:foreach(
        fun(Page) ->
            Rows = [{N, Page, N * Page} || N <- lists:seq(1, 500)],
            500 = length([Row || {_, _, _} = Row <- Rows])
        end,
        lists:seq(1, 100)
    ),
    _ = [find(State, rand:uniform(Entries)) || _ <- lists:seq(1, 200)],
    lab:count(Served),
    lab:pause(RequestMs),
    serve(change(State, rand:uniform(Entries)), Entries, RequestMs, Served).

find({heap, Map}, N) -> maps:get(N, Map, none);
find({ets, Table}, N) -> ets:lookup(Table, N).

change({heap, Map}, N) ->
    {heap, Map#{N => {N, 2 * N, [N], read}}};
change({ets, Table}, N) ->
    ets:insert(Table, {N, {N, 2 * N, [N], read}}),
    {ets, Table}.
