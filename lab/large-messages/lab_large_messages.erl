%% Boards that hold prices, and sessions that show them. A price changes some fifty times a second, and the board tells
%% all its sessions. One board sends them all of its prices each time: these are copied for each session, which reads one
%% and throws them away. Cured, it sends what has changed. A session that has not read the last change yet is left out.
-module(lab_large_messages).

-export([start/1, establish/1]).

start(Args) -> lab:run(?MODULE, Args).

establish(Context) ->
    Count = lab:int(Context, boards, 2, 4),
    Many = lab:int(Context, sessions, 20, 30),
    PerS = lab:int(Context, changes_per_s, 45, 50),
    %% Of two CPUs, what showing takes in all, if each change of fifty in a second is shown in each session.
    BusyPct = lab:int(Context, busy_pct, 65, 75),
    ShowUs = BusyPct * 2 * 20000 div 100 div Many,
    UnitsPerMs = lab:calibrate(),
    Shown = lab:counter(),
    Boards = lab:names(Context, board, Count),
    Which = lab:pick(Context, which, lists:seq(1, Count)),
    [
        begin
            Prices = prices(lab:int(Context, {prices, N}, 3000, 3900)),
            Show = fun() -> session(UnitsPerMs, ShowUs, Shown) end,
            Sessions = [lab:start(member(Board, K), Show) || K <- lists:seq(1, case N of Which -> Many; _ -> 3 end)],
            IsWhole = lab:sick(Context) andalso N =:= Which,
            lab:start(fun() -> lab:at_rate(PerS, fun(_) -> change(Prices, Sessions, IsWhole) end) end)
        end
     || {N, Board} <- lists:zip(lists:seq(1, Count), Boards)
    ],
    lab:wait_until(shown, fun() -> lab:total(Shown) > 3 * PerS * Many div 2 end),
    #{
        %% Each of its sessions is called so, with a number behind it.
        sick => lab:culprit(Context, lists:nth(Which, Boards)),
        details => #{boards => {list, Boards}, sessions => Many, changes_per_s => PerS, show_us => ShowUs}
    }.

member(Board, K) -> list_to_atom(lists:concat([Board, "_", K])).

%% Some 110 bytes for each.
prices(Count) ->
    maps:from_list([{N, {N, 100 + N rem 977, integer_to_binary(N), [N, N + 1]}} || N <- lists:seq(1, Count)]).

change(Prices, Sessions, IsWhole) ->
    Thing = rand:uniform(map_size(Prices)),
    Told = case IsWhole of true -> Prices; false -> #{Thing => maps:get(Thing, Prices)} end,
    [Session ! {changed, Thing, Told} || Session <- Sessions, {message_queue_len, 0} =:= process_info(Session, message_queue_len)].

session(UnitsPerMs, ShowUs, Shown) ->
    receive {changed, Thing, #{} = Prices} -> {Thing, _, _, _} = maps:get(Thing, Prices) end,
    lab:work(UnitsPerMs, ShowUs),
    lab:count(Shown),
    session(UnitsPerMs, ShowUs, Shown).
