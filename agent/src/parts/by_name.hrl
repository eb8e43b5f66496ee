%% Shared by the explicit items: time limits, named processes, and a worker process with a bounded heap for memory-intensive
%% work.

%% Maximum number of processes that a request may name.
-define(MAX_NAMED, 1000).
%% Maximum time limit of `locks'.
-define(MAX_LOCKS_MS, 720000).

%% Explicit items may take long: each has its own time limit (milliseconds), which its parameters may set.
limit_ms({Name, Params}) when is_map(Params) ->
    case long_ms(Name) of
        none -> none;
        Default when Name =:= locks -> bounded(limit_ms, Params, 50, counted_ms(Params) + Default, ?MAX_LOCKS_MS);
        Default -> bounded(limit_ms, Params, 50, Default, 600000)
    end;
limit_ms(Name) -> limit_ms({Name, #{}}).

long_ms(carriers) -> 10000;
long_ms(allocations) -> 10000;
long_ms(code_memory) -> 5000;
long_ms(holders) -> 10000;
long_ms(collect) -> 30000;
%% In addition to the period of counting.
long_ms(locks) -> 30000;
long_ms(_) -> none.

%% The deadline of an explicit item.
until(Item, Params) -> now_ns() + limit_ms({Item, Params}) * 1000000.

%% A time limit for `receive'. Rounded up, since a wait that ends early counts as unanswered.
ms_until(Until) -> max(0, (Until - now_ns() + 999999) div 1000000).

%% Runs Fun in a separate process, by default at priority normal, with a bounded heap: {ok, Result}, {failed, Why}, `late' or
%% `large'. A guard process in between never blocks, so it kills the worker at the deadline, or when we are killed.
run_isolated(Fun, Until) -> run_isolated(Fun, Until, [{priority, normal}, max_words(?WORKER_HEAP_WORDS)]).

max_words(Words) -> {max_heap_size, #{size => Words, kill => true, error_logger => false}}.

run_isolated(Fun, Until, Options) ->
    Collector = self(),
    Guard = spawn_opt(fun() -> guard(Collector, Fun, Options) end, [link, {priority, high}]),
    receive
        {Guard, Result} -> Result
    after ms_until(Until) ->
        unlink(Guard),
        exit(Guard, shutdown),
        receive {Guard, Result} -> Result after 0 -> late end
    end.

guard(Collector, Fun, Options) ->
    process_flag(trap_exit, true),
    Safe = fun() -> exit(try {done, Fun()} catch Class:Reason:Stack -> {failed, text({Class, Reason, Stack})} end) end,
    Worker = spawn_opt(Safe, [link | Options]),
    receive
        {'EXIT', Worker, {done, Result}} -> Collector ! {self(), {ok, Result}};
        {'EXIT', Worker, {failed, Why}} -> Collector ! {self(), {failed, Why}};
        {'EXIT', Worker, _} -> Collector ! {self(), large};
        {'EXIT', _, _} -> exit(Worker, kill)
    end.

%% Folds over all processes, in chunks: {total, scanned, Acc, State}.
each_process(Chunk, Acc, Until, State) ->
    {List, Total} = all_processes(Until),
    Rest = case List of {list_table, _, _} -> 1; _ -> List end,
    Round = #round{number = 1, part = 1, rest = Rest, list = List, total = Total, cost_ns = 1000},
    {#round{scanned = Scanned}, Found, Next} =
        scan(Round, max(1, Total), Chunk, Acc, State#state{deadline_ns = Until, rested_ns = now_ns()}),
    close_list(List),
    {Total, Scanned, Found, Next}.

all_processes(Until) ->
    case erlang:system_info(process_count) of
        Count when Count > ?MAX_LIST ->
            Lister = lister(fun erlang:processes/0, Count),
            receive {listed, Lister, Table, Total} -> {{list_table, Table, Lister}, Total}
            after ms_until(Until) ->
                unlink(Lister),
                exit(Lister, kill),
                {[], Count}
            end;
        _ ->
            All = erlang:processes(),
            {All, length(All)}
    end.

%% Processes that the client has named, by pid or registered name; unknown and remote ones are left out.
local_pids(Names) ->
    [Pid || Name <- lists:sublist(Names, ?MAX_NAMED), is_binary(Name), Pid <- [local_pid(Name)], is_pid(Pid), node(Pid) =:= node()].

local_pid(Name) ->
    try list_to_pid(binary_to_list(Name))
    catch error:_ ->
        try whereis(binary_to_existing_atom(Name, utf8)) catch error:_ -> none end
    end.

%% Adds name, label and initial call of processes that are still alive.
named_rows(Rows, #state{features = Features} = State) ->
    Known = details(fun(Pid) -> identity(Pid, Features) end, [Pid || {Pid, _} <- Rows], State#state{deadline_ns = now_ns()}),
    [case lists:keyfind(Pid, 1, Known) of
         {_, #{call := Call} = Identity} -> maps:merge(Row#{pid => id(Pid), initial_call => Call}, maps:with([name, label], Identity));
         false -> Row#{pid => id(Pid)}
     end || {Pid, Row} <- Rows].
