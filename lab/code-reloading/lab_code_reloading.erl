%% The settings of a service are a module: each change generates its source, compiles and loads it, so that reading a
%% setting is a call that copies nothing, as was done before persistent_term. Each change purges the previous version, for
%% which all processes are checked. Healthy: the settings are in ETS, and change as often.
-module(lab_code_reloading).

-export([start/1, establish/1]).

%% Changes made before the lab is ready.
-define(WARMUP_CHANGES, 10).

%% GCs of each session before the first change.
-define(WARMUP_GCS, 5).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Sessions = lab:int(Context, sessions, 1500, 2500),
    Settings = lab:int(Context, settings, 30, 60),
    Changes = lab:int(Context, changes_per_s, 8, 12),
    PerS = lab:int(Context, reads_per_s, 300, 600),
    State = lab:int(Context, state_words, 500, 1500),
    [Module, Writer | Sources] = lab:names(Context, names, 4),
    Sick = lab:sick(Context),
    Sick orelse lab:table(Module),
    change(Sick, Module, Settings, 0),
    Begun = lab:counter(),
    Answered = lab:counter(),
    Pids = list_to_tuple([
        lab:start(fun() ->
            Words = lists:seq(1, State div 2),
            %% Heaps reach their final size.
            [erlang:garbage_collect(self(), [{type, minor}]) || _ <- lists:seq(1, ?WARMUP_GCS)],
            lab:count(Begun),
            session(Sick, Module, Words, none)
        end)
     || _ <- lists:seq(1, Sessions)
    ]),
    lab:wait_until(sessions, fun() -> lab:total(Begun) =:= Sessions end),
    [
        lab:start(Source, fun() ->
            lab:at_rate(PerS, fun(Due) ->
                [element(rand:uniform(Sessions), Pids) ! {read, rand:uniform(Settings), Answered} || _ <- lists:seq(1, Due)]
            end)
        end)
     || Source <- Sources
    ],
    Changed = lab:counter(),
    lab:start(Writer, fun() ->
        lab:at_rate(Changes, fun(Due) ->
            [
                begin
                    change(Sick, Module, Settings, lab:total(Changed)),
                    lab:count(Changed)
                end
             || _ <- lists:seq(1, Due)
            ]
        end)
    end),
    lab:wait_until(changes, fun() -> lab:total(Changed) >= ?WARMUP_CHANGES end),
    lab:wait_until(reads, fun() -> lab:total(Answered) > PerS end),
    #{
        sick => none,
        details => #{
            module => Module, writer => Writer, sources => {list, Sources}, sessions => Sessions, settings => Settings,
            changes_per_s => Changes, changed_per_s => lab:per_second(Changed, 2000), state_words => State
        }
    }.

change(true, Module, Settings, Version) ->
    Clauses = [clause(Setting, value(Setting, Version)) || Setting <- lists:seq(1, Settings)],
    Forms = [{attribute, 1, module, Module}, {attribute, 1, export, [{get, 1}]}, {function, 1, get, 1, Clauses}],
    {ok, Module, Code} = compile:forms(Forms, []),
    code:purge(Module),
    {module, Module} = code:load_binary(Module, atom_to_list(Module) ++ ".erl", Code);
change(false, Module, Settings, Version) ->
    ets:insert(Module, [{Setting, value(Setting, Version)} || Setting <- lists:seq(1, Settings)]).

clause(Setting, Value) -> {clause, 1, [{integer, 1, Setting}], [], [erl_parse:abstract(Value)]}.

value(Setting, Version) -> {setting, Setting, Version, [Setting, Version]}.

read(true, Module, Setting) ->
    Module:get(Setting);
read(false, Module, Setting) ->
    [{_, Value}] = ets:lookup(Module, Setting),
    Value.

%% The session keeps the last setting as it is in the module: a literal is not copied.
session(Sick, Module, State, _) ->
    receive
        {read, Setting, Answered} ->
            Kept = read(Sick, Module, Setting),
            lab:count(Answered),
            session(Sick, Module, State, Kept)
    end.
