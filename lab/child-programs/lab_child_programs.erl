%% Servers compute checksums of documents. One of them starts an external program for each (open_port); the start alone
%% takes milliseconds of CPU time. Healthy: it computes them within the VM, as the others do.
-module(lab_child_programs).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Names = lab:names(Context, server, lab:int(Context, servers, 3, 6)),
    Which = lab:pick(Context, which, Names),
    PerS = lab:int(Context, requests_per_s, 60, 120),
    Answered = lab:counter(),
    Checksum = case lab:sick(Context) of true -> fun by_program/1; false -> fun erlang:crc32/1 end,
    [
        lab:start(Name, fun() ->
            serve(case Name of Which -> Checksum; _ -> fun erlang:crc32/1 end, PerS, Answered)
        end)
     || Name <- Names
    ],
    lab:wait_until(answered, fun() -> lab:total(Answered) > 2 * PerS * length(Names) end),
    #{sick => lab:culprit(Context, Which), details => #{servers => {list, Names}, requests_per_s => PerS}}.

serve(Checksum, PerS, Answered) ->
    lab:at_rate(PerS, fun(Due) ->
        lists:foreach(fun(N) -> _ = Checksum(integer_to_binary(N)), lab:count(Answered) end, lists:seq(1, Due))
    end).

by_program(Document) ->
    Port = open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", "echo " ++ binary_to_list(Document) ++ " | cksum"]},
                                                     exit_status, binary]),
    checksum(Port, <<>>).

checksum(Port, Answer) ->
    receive
        {Port, {data, Data}} -> checksum(Port, <<Answer/binary, Data/binary>>);
        {Port, {exit_status, 0}} -> Answer
    end.
