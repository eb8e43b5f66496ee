%% What the items share that are read only when a person asks for them by name: time limits, named processes, and a process
%% beside the collector with a bounded heap for what needs much memory.

%% How many processes a request may name.
-define(MAX_NAMED, 1000).
%% The longest time limit of `locks'.
-define(MOST_LOCKS_MS, 720000).

%% They may take long: each has a time limit of its own (milliseconds), which its parameters may set.
limit_ms({Name, Params}) when is_map(Params) ->
    case long_ms(Name) of
        none -> none;
        Default when Name =:= locks -> bounded(limit_ms, Params, 50, counted_ms(Params) + Default, ?MOST_LOCKS_MS);
        Default -> bounded(limit_ms, Params, 50, Default, 600000)
    end;
limit_ms(Name) -> limit_ms({Name, #{}}).

long_ms(carriers) -> 10000;
long_ms(allocations) -> 10000;
long_ms(code_memory) -> 5000;
long_ms(holders) -> 10000;
long_ms(collect) -> 30000;
%% Besides the time for which they are counted.
long_ms(locks) -> 30000;
long_ms(_) -> none.

%% When such an item has to be at its end.
until(Item, Params) -> now_ns() + limit_ms({Item, Params}) * 1000000.

%% A time limit for `receive'. Rounded up: a wait that ends before its time is over is counted as one without an answer.
ms_until(Until) -> max(0, (Until - now_ns() + 999999) div 1000000).

%% Runs Fun in a process of its own, at priority normal, whose heap is bounded and gone afterwards: {ok, Result}, {failed, Why},
%% `late' or `large'. The one between never waits for anything, so it ends the other one in time, and when we are killed.
aside(Fun, Until) -> aside(Fun, Until, [{priority, normal}, max_words(?ASIDE_WORDS)]).

max_words(Words) -> {max_heap_size, #{size => Words, kill => true, error_logger => false}}.

aside(Fun, Until, Options) ->
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

%% What all processes give, in chunks: {how many there are, how many were looked at, Acc, State}.
each_process(Chunk, Acc, Until, State) ->
    {List, Total} = all_processes(Until),
    Rest = case List of {book, _, _} -> 1; _ -> List end,
    Round = #round{number = 1, part = 1, rest = Rest, list = List, total = Total, cost_ns = 1000},
    {#round{scanned = Scanned}, Found, Next} =
        scan(Round, max(1, Total), Chunk, Acc, State#state{deadline_ns = Until, rested_ns = now_ns()}),
    close_book(List),
    {Total, Scanned, Found, Next}.

all_processes(Until) ->
    case erlang:system_info(process_count) of
        Count when Count > ?BOOK ->
            Lister = lister(fun erlang:processes/0, Count),
            receive {listed, Lister, Table, Total} -> {{book, Table, Lister}, Total}
            after ms_until(Until) ->
                unlink(Lister),
                exit(Lister, kill),
                {[], Count}
            end;
        _ ->
            All = erlang:processes(),
            {All, length(All)}
    end.

%% Processes that the client has named, by pid or by registered name; what is none of this node's is left out.
local_pids(Names) ->
    [Pid || Name <- lists:sublist(Names, ?MAX_NAMED), is_binary(Name), Pid <- [local_pid(Name)], is_pid(Pid), node(Pid) =:= node()].

local_pid(Name) ->
    try list_to_pid(binary_to_list(Name))
    catch error:_ ->
        try whereis(binary_to_existing_atom(Name, utf8)) catch error:_ -> none end
    end.

%% name, label and what they run, of those that still live.
named_rows(Rows, #state{features = Features} = State) ->
    Known = details(fun(Pid) -> identity(Pid, Features) end, [Pid || {Pid, _} <- Rows], State#state{deadline_ns = now_ns()}),
    [case lists:keyfind(Pid, 1, Known) of
         {_, #{call := Call} = Identity} -> maps:merge(Row#{pid => id(Pid), initial_call => Call}, maps:with([name, label], Identity));
         false -> Row#{pid => id(Pid)}
     end || {Pid, Row} <- Rows].
