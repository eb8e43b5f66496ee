%% Rooms keep their history as terms on the heap and create garbage with each message. With ERL_FULLSWEEP_AFTER=0 each GC
%% copies the history; with the default it is copied once and then skipped.
-module(lab_heap_settings).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Names = lab:names(Context, room, lab:int(Context, rooms, 12, 24)),
    Entries = lab:int(Context, entries, 30000, 60000),
    PerS = lab:int(Context, messages_per_s, 20, 30),
    Sent = lab:counter(),
    [
        lab:start(Name, fun() ->
            History = [{N, {message, N, [N, N + 1]}} || N <- lists:seq(1, Entries)],
            lab:at_rate(PerS, fun(Due) -> [send(History, Sent) || _ <- lists:seq(1, Due)] end)
        end)
     || Name <- Names
    ],
    lab:wait_until(sent, fun() -> lab:total(Sent) > 2 * PerS * length(Names) end),
    #{sick => none, details => #{rooms => {list, Names}, entries => Entries, messages_per_s => PerS}}.

%% 40,000 words of garbage.
send([{_, {message, N, _}} | _], Sent) ->
    2000 = length([Line || {line, _, _} = Line <- [{line, N, [Row, Row, Row, Row]} || Row <- lists:seq(1, 2000)]]),
    lab:count(Sent).
