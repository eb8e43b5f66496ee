%% Request handlers serve files of a directory with file:read_file/1: one OTP process, file_server_2, reads one file at a
%% time for all of them. Healthy: they call prim_file, which reads in the calling process.
-module(lab_file_server).

-export([start/1, establish/1]).

-define(KB, 1024).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Handlers = lab:int(Context, handlers, 30, 50),
    Files = lab:int(Context, files, 10, 20),
    Kb = lab:int(Context, file_kb, 200, 400),
    %% In per cent of what the file server can read.
    DemandPct = lab:int(Context, demand_pct, 125, 135),
    Folder = filename:join(filename:dirname(code:which(?MODULE)), atom_to_list(lab:name(Context, folder))),
    ok = filelib:ensure_dir(filename:join(Folder, "any")),
    Paths = [filename:join(Folder, integer_to_list(N)) || N <- lists:seq(1, Files)],
    [ok = file:write_file(Path, lab:binary(Kb * ?KB)) || Path <- Paths],
    Reads = [timer:tc(fun() -> file:read_file(Path) end) || _ <- lists:seq(1, 5), Path <- Paths],
    ReadUs = lists:min([Us || {Us, {ok, _}} <- Reads]),
    ThinkUs = max(0, Handlers * ReadUs * 100 div DemandPct - ReadUs),
    Read =
        case lab:sick(Context) of
            true -> fun file:read_file/1;
            false -> fun prim_file:read_file/1
        end,
    Served = lab:counter(),
    [
        lab:start(fun() -> lab:forever(fun() -> serve(Read, list_to_tuple(Paths), Kb * ?KB, ThinkUs, Served) end) end)
     || _ <- lists:seq(1, Handlers)
    ],
    lab:wait_until(served, fun() -> lab:total(Served) > 20 * Handlers end),
    #{
        sick => lab:culprit(Context, file_server_2),
        details => #{
            handlers => Handlers, files => Files, file_kb => Kb, demand_pct => DemandPct, read_us => ReadUs,
            served_per_s => lab:per_second(Served, 2000)
        }
    }.

serve(Read, Paths, Bytes, ThinkUs, Served) ->
    lab:pause(round(2 * ThinkUs / 1000 * rand:uniform())),
    {ok, Content} = Read(element(rand:uniform(tuple_size(Paths)), Paths)),
    Bytes = byte_size(Content),
    lab:count(Served).
