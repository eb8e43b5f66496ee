%% Processes that read files, a VM started with +A 128 for them, and a pool of async threads that nothing uses: dirty I/O
%% schedulers execute file operations. Healthy: no such flag, and the same work.
-module(lab_async_threads).

-export([start/1, establish/1]).

-include_lib("kernel/include/file.hrl").

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Readers = lab:int(Context, readers, 4, 12),
    PerS = lab:int(Context, files_per_s, 5, 20),
    Kb = lab:int(Context, kb, 4, 64),
    Names = lab:names(Context, readers, Readers),
    Folder = code:lib_dir(stdlib) ++ "/ebin/",
    {ok, Found} = file:list_dir(Folder),
    Files = [Folder ++ File || File <- Found, is_regular(Folder ++ File)],
    Read = lab:counter(),
    [
        lab:start(Name, fun() ->
            lab:at_rate(PerS, fun(Due) -> [read(Files, Kb, Read) || _ <- lists:seq(1, Due)] end)
        end)
     || Name <- Names
    ],
    lab:wait_until(files_are_read, fun() -> lab:total(Read) > 5 * Readers end),
    #{
        sick => none,
        details => #{
            readers => {list, Names}, files_per_s => PerS, kb => Kb, threads => erlang:system_info(thread_pool_size)
        }
    }.

is_regular(File) ->
    {ok, #file_info{type = Type}} = file:read_file_info(File),
    Type =:= regular.

%% Reads the first part of a file.
read(Files, Kb, Read) ->
    {ok, Device} = file:open(lists:nth(rand:uniform(length(Files)), Files), [read, raw, binary]),
    {ok, _} = file:read(Device, Kb * 1024),
    ok = file:close(Device),
    lab:count(Read).
