%% Collectors that keep statistics of channels, each in a table of its own. When a channel ends, its objects are searched
%% in the whole table. One collector uses the wrong key, so the objects of all channels that ever existed stay there; each
%% search scans them, and events wait meanwhile. Healthy: it uses the right key.
-module(lab_unswept_statistics).
-behaviour(gen_server).

-export([start/1, establish/1]).
-export([init/1, handle_call/3, handle_cast/2]).

%% Number of newest samples kept per kind.
-define(SAMPLES, 5).
-define(REPORT_EVERY_MS, 500).
%% Objects of earlier channels that are inserted per step.
-define(STEP_OBJECTS, 10000).
%% Share of the collector's time that searches take when the lab is ready, unless there are this many objects by then.
-define(SEARCHES_PCT, 140).
-define(MAX_EARLIER_OBJECTS, 300000).
%% At this number of objects, or of queued events, no more channels are opened.
-define(MAX_OBJECTS, 450000).
-define(MAX_EVENTS, 300000).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Sick = lab:sick(Context),
    ChannelsPerS = lab:int(Context, channels_per_s, 100, 150),
    LifeMs = lab:int(Context, life_ms, 1500, 2500),
    Kinds = lab:int(Context, kinds, 5, 7),
    Dashboards = lab:int(Context, dashboards, 4, 8),
    [Table | Others] = Tables = lab:names(Context, tables, 3),
    {Name, Collector} = lab:server(Context, collector, {?MODULE, {Table, Kinds, Sick}}),
    %% Queues and connections, which are less frequent, and are deleted when they end.
    OtherCollectors = [lab:server(Context, {collector, Other}, {?MODULE, {Other, Kinds, false}}) || Other <- Others],
    Sick andalso gen_server:call(Collector, {earlier, ChannelsPerS}, infinity),
    source(Collector, Table, ChannelsPerS, LifeMs),
    [
        source(OtherPid, Other, ChannelsPerS div 20, LifeMs)
     || {Other, {_, OtherPid}} <- lists:zip(Others, OtherCollectors)
    ],
    Asked = lab:counter(),
    [lab:start(fun() -> dashboard(Collector, Asked) end) || _ <- lists:seq(1, Dashboards)],
    case Sick of
        true -> lab:wait_until(behind, fun() -> queue_len(Collector) > 3 * ChannelsPerS end);
        false -> lab:wait_until(asked, fun() -> lab:total(Asked) > Dashboards end)
    end,
    #{
        sick => lab:culprit(Context, Table),
        details => #{
            collector => Name, pid => Collector, table => Table, tables => {list, lab:shuffle(Context, order, Tables)},
            collectors => {list, lab:shuffle(Context, collectors, [Name | [Other || {Other, _} <- OtherCollectors]])},
            channels_per_s => ChannelsPerS, life_ms => LifeMs, kinds => Kinds, dashboards => Dashboards,
            rows => ets:info(Table, size)
        }
    }.

queue_len(Pid) ->
    {message_queue_len, Length} = erlang:process_info(Pid, message_queue_len),
    Length.

%% Channels, each of which reports twice per second and sends a message when it ends.
source(Collector, Table, PerS, LifeMs) ->
    lab:start(fun() ->
        lab:at_rate(max(1, PerS), fun(Due) ->
            case ets:info(Table, size) < ?MAX_OBJECTS andalso queue_len(Collector) < ?MAX_EVENTS of
                true -> [channel(Collector, LifeMs) || _ <- lists:seq(1, Due)];
                false -> ok
            end
        end)
    end).

channel(Collector, LifeMs) ->
    lab:start(fun() ->
        Id = id(),
        gen_server:cast(Collector, {begun, Id, self()}),
        report(Collector, Id, LifeMs div ?REPORT_EVERY_MS),
        gen_server:cast(Collector, {ended, Id})
    end).

id() -> <<"channel ", (integer_to_binary(erlang:unique_integer([positive])))/binary, " of 127.0.0.1">>.

report(_, _, 0) ->
    ok;
report(Collector, Id, Left) ->
    gen_server:cast(Collector, {report, Id, rand:uniform(1000)}),
    lab:pause(?REPORT_EVERY_MS),
    report(Collector, Id, Left - 1).

dashboard(Collector, Asked) ->
    lab:pause(500 + rand:uniform(1000)),
    true = gen_server:call(Collector, overview, infinity) >= 0,
    lab:count(Asked),
    dashboard(Collector, Asked).

init({Table, Kinds, WrongKey}) ->
    Table = ets:new(Table, [named_table, set]),
    {ok, #{table => Table, kinds => Kinds, wrong_key => WrongKey, here => #{}}}.

handle_call(overview, _From, #{here := Here} = State) ->
    {reply, map_size(Here), State};
handle_call({earlier, EndsPerS}, _From, State) ->
    {reply, earlier(EndsPerS, State), State}.

handle_cast({begun, Id, Pid}, #{here := Here} = State) ->
    {noreply, State#{here := Here#{Id => Pid}}};
handle_cast({report, Id, Value}, State) ->
    sample(Id, Value, State),
    {noreply, State};
handle_cast({ended, Id}, #{here := Here} = State) ->
    sweep(Id, State),
    {noreply, State#{here := maps:remove(Id, Here)}}.

sample(Id, Value, #{table := Table, kinds := Kinds}) ->
    At = erlang:monotonic_time(millisecond),
    [
        begin
            Earlier =
                case ets:lookup(Table, {Id, Kind}) of
                    [{_, _, Samples}] -> lists:sublist(Samples, ?SAMPLES - 1);
                    [] -> []
                end,
            ets:insert(Table, {{Id, Kind}, Value, [{At, Value + Kind} | Earlier]})
        end
     || Kind <- lists:seq(1, Kinds)
    ].

%% Both scan the whole table; no key has the first form.
sweep(Id, #{table := Table, wrong_key := true}) -> ets:match_delete(Table, {{{channel, Id}, '_'}, '_', '_'});
sweep(Id, #{table := Table, wrong_key := false}) -> ets:match_delete(Table, {{Id, '_'}, '_', '_'}).

%% The channels of several hours, enough for searches to take all of the collector's time.
earlier(EndsPerS, #{table := Table, kinds := Kinds} = State) ->
    [
        begin
            Id = id(),
            [sample(Id, rand:uniform(1000), State) || _ <- lists:seq(1, ?SAMPLES - 2)]
        end
     || _ <- lists:seq(1, ?STEP_OBJECTS div Kinds)
    ],
    %% The fastest one, because other programs may use the CPU.
    Us = lists:min([element(1, timer:tc(fun() -> sweep(<<"none">>, State) end)) || _ <- lists:seq(1, 3)]),
    case Us * EndsPerS < 10000 * ?SEARCHES_PCT andalso ets:info(Table, size) < ?MAX_EARLIER_OBJECTS of
        true -> earlier(EndsPerS, State);
        false -> ok
    end.
