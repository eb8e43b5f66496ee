%% Many processes that read a slow device, each through its own file. A read blocks one dirty I/O scheduler until the
%% device answers, so all of them are blocked all the time, and all other file operations queue. Healthy: one process
%% reads the device for all.
%%
%% The device is a named pipe that a shell fills at a steady rate.
-module(lab_dirty_io_saturated).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    load_all_modules(),
    Readers = lab:int(Context, readers, 20, 40),
    LinesPerS = lab:int(Context, lines_per_s, 10, 25),
    Names = lab:names(Context, readers, Readers),
    Pipe = make_pipe(),
    Device = open_device(Pipe, LinesPerS),
    Read = lab:counter(),
    Opened = lab:counter(),
    Open =
        case lab:sick(Context) of
            true ->
                [lab:start(Name, fun() -> reader(Pipe, Opened, Read) end) || Name <- Names];
            false ->
                One = lab:start(lab:name(Context, one_reader), fun() -> distributor(Pipe, Opened, Read) end),
                [lab:start(Name, fun() -> customer(One) end) || Name <- Names],
                [One]
        end,
    lab:wait_until(opened, fun() -> lab:total(Opened) =:= length(Open) end),
    %% From here on only the open files refer to the device, and nothing is left on the disk.
    [] = os:cmd("rm -f " ++ Pipe),
    [Reader ! go || Reader <- Open],
    lab:wait_until(device_is_read, fun() -> lab:total(Read) >= LinesPerS end),
    #{
        sick => none,
        details => #{
            readers => {list, Names}, lines_per_s => LinesPerS,
            dirty_io_schedulers => erlang:system_info(dirty_io_schedulers), device_port => erlang:port_to_list(Device)
        }
    }.

%% As a release does when it starts (-mode embedded): later every load would wait for the device. This includes crypto
%% because net_kernel uses its random numbers for dynamic node names (create_creation/0), and would wait for its code
%% together with all processes that connect.
load_all_modules() ->
    code:ensure_loaded(crypto),
    Modules = lists:append([element(2, application:get_key(App, modules)) || App <- [kernel, stdlib]]),
    [code:ensure_loaded(Module) || Module <- Modules].

make_pipe() ->
    Pipe = lists:concat(["/tmp/lab-device-", os:getpid(), "-", erlang:unique_integer([positive])]),
    [] = os:cmd("mkfifo -m 600 " ++ Pipe),
    Pipe.

%% Opening the pipe for both directions never blocks. The shell exits with the VM: it checks its parent, erl_child_setup,
%% at each line.
open_device(Pipe, LinesPerS) ->
    Script = io_lib:format(
        "exec 3<>~s; while kill -0 $PPID 2>/dev/null; do echo line >&3; sleep ~.3f; done",
        [Pipe, 1 / LinesPerS]
    ),
    open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", lists:flatten(Script)]}]).

reader(Pipe, Opened, Read) ->
    File = open(Pipe, Opened),
    lab:forever(fun() -> read(File, Read) end).

distributor(Pipe, Opened, Read) ->
    File = open(Pipe, Opened),
    lab:forever(fun() ->
        read(File, Read),
        receive {want, From} -> From ! line end
    end).

open(Pipe, Opened) ->
    {ok, File} = file:open(Pipe, [read, raw, binary]),
    lab:count(Opened),
    receive go -> File end.

read(File, Read) ->
    {ok, <<"line\n">>} = file:read(File, 5),
    lab:count(Read).

customer(One) ->
    lab:forever(fun() ->
        One ! {want, self()},
        receive line -> ok end
    end).
