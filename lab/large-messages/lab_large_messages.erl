%% Boards that hold prices, and sessions that show them. A price changes about fifty times per second, and the board
%% notifies all its sessions. One board sends them all of its prices each time: these are copied for each session, which
%% reads one and discards the rest. Healthy: it sends the change. A session that has not read the last change yet is
%% skipped.
-module(lab_large_messages).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Count = lab:int(Context, boards, 2, 4),
    SessionCount = lab:int(Context, sessions, 20, 30),
    PerS = lab:int(Context, changes_per_s, 45, 50),
    %% Share of two CPUs that showing takes in total, if each of fifty changes per second is shown in each session.
    BusyPct = lab:int(Context, busy_pct, 65, 75),
    ShowUs = BusyPct * 2 * 20000 div 100 div SessionCount,
    UnitsPerMs = lab:calibrate(),
    Shown = lab:counter(),
    Boards = lab:names(Context, board, Count),
    Which = lab:pick(Context, which, lists:seq(1, Count)),
    [
        begin
            Prices = prices(lab:int(Context, {prices, N}, 3000, 3900)),
            Show = fun() -> session(UnitsPerMs, ShowUs, Shown) end,
            Sessions = [lab:start(member(Board, K), Show) || K <- lists:seq(1, case N of Which -> SessionCount; _ -> 3 end)],
            IsWhole = lab:sick(Context) andalso N =:= Which,
            lab:start(fun() -> lab:at_rate(PerS, fun(_) -> change(Prices, Sessions, IsWhole) end) end)
        end
     || {N, Board} <- lists:zip(lists:seq(1, Count), Boards)
    ],
    lab:wait_until(shown, fun() -> lab:total(Shown) > 3 * PerS * SessionCount div 2 end),
    #{
        %% Each of its sessions has this name with a number appended.
        sick => lab:culprit(Context, lists:nth(Which, Boards)),
        details => #{boards => {list, Boards}, sessions => SessionCount, changes_per_s => PerS, show_us => ShowUs}
    }.

member(Board, K) -> list_to_atom(lists:concat([Board, "_", K])).

%% About 110 bytes each.
prices(Count) ->
    maps:from_list([{N, {N, 100 + N rem 977, integer_to_binary(N), [N, N + 1]}} || N <- lists:seq(1, Count)]).

change(Prices, Sessions, IsWhole) ->
    Thing = rand:uniform(map_size(Prices)),
    Payload = case IsWhole of true -> Prices; false -> #{Thing => maps:get(Thing, Prices)} end,
    [Session ! {changed, Thing, Payload} || Session <- Sessions, {message_queue_len, 0} =:= process_info(Session, message_queue_len)].

session(UnitsPerMs, ShowUs, Shown) ->
    receive {changed, Thing, #{} = Prices} -> {Thing, _, _, _} = maps:get(Thing, Prices) end,
    lab:work(UnitsPerMs, ShowUs),
    lab:count(Shown),
    session(UnitsPerMs, ShowUs, Shown).
