%% Workers that log what they do, to a log on a slow disk (here: a pipe that is read slowly). The logger's handler cannot
%% keep up: its queue is longer than sync_mode_qlen, so processes that log wait for it. Healthy: the logger's level is
%% `warning`, and events below it cost next to nothing.
-module(lab_logger_overload).

-export([start/1, establish/1]).
-export([slow_pipe/1]).

-include_lib("kernel/include/logger.hrl").

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Workers = lab:int(Context, workers, 30, 120),
    EventsPerS = lab:int(Context, events_per_s, 8, 15),
    Bytes = lab:int(Context, event_bytes, 200, 400),
    WrittenPerS = lab:int(Context, written_per_s, 80, 150),
    Handler = lab:name(Context, handler),
    Pipe = slow_pipe(WrittenPerS * Bytes),
    %% The lab must not print anything else: the runner reads the terminal.
    _ = logger:remove_handler(default),
    %% A pipe cannot be synced. Without the burst limit of 500 events per second, and with a small buffer, the rate is
    %% even.
    Type = {file, Pipe, [append, {delayed_write, 1024, 100}]},
    Config = #{type => Type, filesync_repeat_interval => no_repeat, burst_limit_enable => false},
    ok = logger:add_handler(Handler, logger_std_h, #{config => Config}),
    Level = case lab:sick(Context) of true -> info; false -> warning end,
    ok = logger:set_primary_config(level, Level),
    Process = list_to_atom("logger_std_h_" ++ atom_to_list(Handler)),
    Text = binary:copy(<<"e">>, Bytes),
    Done = lab:counter(),
    [lab:start(fun() -> worker(N, EventsPerS, Text, Done) end) || N <- lists:seq(1, Workers)],
    case lab:sick(Context) of
        true -> lab:wait_until(queue, fun() -> queue_len(Process) > Workers div 2 end);
        false -> lab:wait_until(done, fun() -> lab:total(Done) > 5 * Workers end)
    end,
    #{
        sick => lab:culprit(Context, Process),
        details => #{
            workers => Workers, events_per_s => Workers * EventsPerS, event_bytes => Bytes,
            written_per_s => WrittenPerS
        }
    }.

worker(N, EventsPerS, Text, Done) ->
    lab:at_rate(EventsPerS, fun(Due) ->
        lists:foreach(
            fun(Job) ->
                ?LOG_INFO("worker ~b did ~b: ~s", [N, Job, Text]),
                lab:count(Done)
            end,
            lists:seq(1, Due)
        )
    end).

queue_len(Name) ->
    {message_queue_len, Length} = erlang:process_info(whereis(Name), message_queue_len),
    Length.

%% A named pipe that is read at a given rate.
slow_pipe(BytesPerS) ->
    Pipe = lists:concat(["/tmp/lab-log-", os:getpid(), "-", erlang:unique_integer([positive])]),
    [] = os:cmd("mkfifo -m 600 " ++ Pipe),
    _ = open_reader(Pipe, BytesPerS),
    Pipe.

%% Opening the pipe for both directions never blocks, and it never reaches its end: so each read has a time-out. The shell
%% exits with the VM (it checks its parent, erl_child_setup, each time) and then removes the pipe. Not earlier: the logger
%% would create a file with its name.
open_reader(Pipe, BytesPerS) ->
    Script = io_lib:format(
        "exec 3<>~s; while kill -0 $PPID 2>/dev/null; do timeout 1 head -c ~b <&3 >/dev/null; sleep 0.1; done; rm -f ~s",
        [Pipe, BytesPerS div 10, Pipe]
    ),
    open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", lists:flatten(Script)]}]).
